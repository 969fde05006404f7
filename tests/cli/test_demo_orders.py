"""The demo's input: the packaged file, and files that are wrong in ways that a user's file may be."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest

from aiodq import ConfigError
from aiodq.cli.demo.orders import packaged_orders, read_orders
from aiodq.cli.demo.shop import CLOSE_AFTER_MIN

HEAD = "order_id,customer,amount,currency,placed,paid,webhook,acknowledged_at_send\n"


def _file(folder: Path, text: str) -> Path:
    path = folder / "orders.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_the_packaged_file_has_the_variety_that_the_demo_tells_of() -> None:
    orders = read_orders()
    assert len(orders) == 120
    unpaid = [order for order in orders if order.paid_s is None]
    waits_s = [order.paid_s - order.placed_s for order in orders if order.paid_s is not None]
    late = [wait for wait in waits_s if wait > CLOSE_AFTER_MIN * 60]
    assert len(unpaid) > 20
    assert 3 <= len(late) <= 10
    # No payment falls within two minutes of the deadline, where a slow machine could turn the outcome.
    assert all(abs(wait - CLOSE_AFTER_MIN * 60) >= 120 for wait in waits_s)
    assert {order.webhook for order in orders} == {"ok", "slow", "fails once", "fails twice", "down"}
    assert {order.acknowledged_at for order in orders} == {1, 2, 3, None}
    assert any("," in order.customer for order in orders)
    assert orders == sorted(orders, key=lambda order: order.placed_s)


def test_the_printed_file_can_be_read_again(tmp_path: Path) -> None:
    assert read_orders(_file(tmp_path, packaged_orders())) == read_orders()


def test_a_line_becomes_an_order(tmp_path: Path) -> None:
    line = 'X1,"Harbour & Sons, Ltd.",1290.00,EUR,09:01:05,09:12:00,fails twice,never\n'
    (order,) = read_orders(_file(tmp_path, HEAD + line))
    assert (order.order_id, order.customer) == ("X1", "Harbour & Sons, Ltd.")
    assert order.amount == Decimal("1290.00")
    assert (order.placed_s, order.paid_s, order.acknowledged_at) == (65, 720, None)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("X1,A,twelve,EUR,09:00:00,,ok,1", "line 2: expected amount to be a decimal number, got 'twelve'"),
        ("X1,A,1,EUR,9 o'clock,,ok,1", 'expected placed to be a time like 09:30:00, got "9 o\'clock"'),
        ("X1,A,1,EUR,08:59:59,,ok,1", "expected placed to be after the shop's opening"),
        ("X1,A,1,EUR,09:10:00,09:09:00,ok,1", "expected paid to be after the order was placed"),
        ("X1,A,1,EUR,09:00:00,,broken,1", "expected webhook to be one of ok, slow"),
        ("X1,A,1,EUR,09:00:00,,ok,4", "expected acknowledged_at_send to be 1, 2, 3 or never"),
        (",A,1,EUR,09:00:00,,ok,1", "expected order_id to be an id"),
        ("X1,A,1,EUR,09:00:00", "the line ends before the column"),
        ("X1,A,1,EUR,09:00:00,,ok,1\nX1,B,1,EUR,09:00:00,,ok,1", "order 'X1' is there twice"),
    ],
)
def test_wrong_lines_are_named(tmp_path: Path, line: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_orders(_file(tmp_path, f"{HEAD}{line}\n"))
    assert says in str(caught.value)


def test_a_file_without_orders_or_columns_or_at_all_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds no orders"):
        read_orders(_file(tmp_path, HEAD))
    with pytest.raises(ConfigError, match="lacks the columns customer"):
        read_orders(_file(tmp_path, "order_id,amount\n"))
    with pytest.raises(ConfigError, match="cannot read orders"):
        read_orders(tmp_path / "none.csv")
