"""The demo's input: one day's orders of a shop, read from a CSV file.

The file that comes with the package is `orders.csv` beside this one; another of the same form can be given.
Times are the shop's clock, `HH:MM:SS`; the shop opens at nine.
"""

from __future__ import annotations

import csv
from datetime import time
from decimal import Decimal, InvalidOperation
from importlib.resources import files
from pathlib import Path
from typing import Final, Literal, TypeAlias, get_args

from msgspec import Struct

from aiodq import ConfigError

Webhook: TypeAlias = Literal["ok", "slow", "fails once", "fails twice", "down"]
"""How the merchant's own system answers when it is told of a payment."""

OPENS_S: Final = 9 * 3600
"""When the shop opens, in seconds of the day."""

_PACKAGED: Final = files("aiodq.cli.demo") / "orders.csv"

_COLUMNS: Final = (
    "order_id", "customer", "amount", "currency", "placed", "paid", "webhook", "acknowledged_at_send",
)  # fmt: skip


class Order(Struct, frozen=True):
    """One order as it will come in.

    Attributes:
        placed_s, paid_s: seconds after the shop's opening; `paid_s` is None if it never is.
        acknowledged_at: the payment notification that the customer acknowledges: 1 is the first; None: none.
    """

    order_id: str
    customer: str
    amount: Decimal
    currency: str
    placed_s: int
    paid_s: int | None
    webhook: Webhook
    acknowledged_at: int | None


def packaged_orders() -> str:
    """The text of the file that comes with the package."""
    return _PACKAGED.read_text(encoding="utf-8")


def read_orders(path: Path | None = None) -> list[Order]:
    """The orders of a file (None: of the packaged one), by the time they are placed.

    Raises: `ConfigError` if the file cannot be read, or a line is wrong: the message names line and column.
    """
    source = path or _PACKAGED
    try:
        text = source.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read orders from {str(source)!r}: {error}") from error
    reader = csv.DictReader(text.splitlines())
    missing = [column for column in _COLUMNS if column not in (reader.fieldnames or ())]
    if missing:
        raise ConfigError(f"{str(source)!r} lacks the columns {', '.join(missing)}")
    orders = [_Line(row, f"{str(source)!r}, line {reader.line_num}").order() for row in reader]
    seen: set[str] = set()
    for order in orders:
        if order.order_id in seen:
            raise ConfigError(f"{str(source)!r}: order {order.order_id!r} is there twice")
        seen.add(order.order_id)
    if not orders:
        raise ConfigError(f"{str(source)!r} holds no orders")
    return sorted(orders, key=lambda order: order.placed_s)


class _Line:
    """One line of the file, asked for its columns; what is wrong is told with the line's number."""

    def __init__(self, row: dict[str, str | None], where: str) -> None:
        self._row = row
        self._where = where

    def order(self) -> Order:
        placed_s = self._moment("placed")
        paid_s = self._moment("paid") if self._word("paid") else None
        if paid_s is not None and paid_s < placed_s:
            raise self._wrong("paid", "after the order was placed")
        if not self._word("order_id"):
            raise self._wrong("order_id", "an id")
        return Order(
            order_id=self._word("order_id"),
            customer=self._word("customer"),
            amount=self._amount(),
            currency=self._word("currency"),
            placed_s=placed_s,
            paid_s=paid_s,
            webhook=self._webhook(),
            acknowledged_at=self._acknowledged_at(),
        )

    def _word(self, column: str) -> str:
        value = self._row[column]
        if value is None:
            raise ConfigError(f"{self._where}: the line ends before the column {column}")
        return value.strip()

    def _wrong(self, column: str, expected: str) -> ConfigError:
        return ConfigError(f"{self._where}: expected {column} to be {expected}, got {self._word(column)!r}")

    def _moment(self, column: str) -> int:
        try:
            at = time.fromisoformat(self._word(column))
        except ValueError:
            raise self._wrong(column, "a time like 09:30:00") from None
        seconds = at.hour * 3600 + at.minute * 60 + at.second - OPENS_S
        if seconds < 0:
            raise self._wrong(column, "after the shop's opening at 09:00")
        return seconds

    def _amount(self) -> Decimal:
        try:
            amount = Decimal(self._word("amount"))
        except InvalidOperation:
            amount = Decimal("NaN")
        if not amount.is_finite():
            raise self._wrong("amount", "a decimal number")
        return amount

    def _webhook(self) -> Webhook:
        known: tuple[Webhook, ...] = get_args(Webhook)
        for webhook in known:
            if webhook == self._word("webhook"):
                return webhook
        raise self._wrong("webhook", f"one of {', '.join(known)}")

    def _acknowledged_at(self) -> int | None:
        word = self._word("acknowledged_at_send")
        if word not in {"1", "2", "3", "never"}:
            raise self._wrong("acknowledged_at_send", "1, 2, 3 or never")
        return None if word == "never" else int(word)
