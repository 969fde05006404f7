"""All that moves jobs is held to the one table of transitions: memory, and the scripts by their text."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from importlib.resources import files

import pytest

from aiodq._core.lifecycle import BY_NAME, PLACES, REPAIRS, TRANSITIONS, Transition
from aiodq._core.settlement import Acked, Buried, Deferred, Released
from aiodq._memory.shard import Shard
from aiodq._redis.keys import KINDS, ShardKeys
from aiodq._redis.scripts import Script, load_scripts, parse_header

SCRIPTS = load_scripts()
EVERY = {**SCRIPTS, **{f"{name}, fifo": script for name, script in load_scripts(fifo=True).items()}}
FOLDER = files("aiodq._redis") / "lua"

SPREAD_LIMIT = 800
"""A call must not get more values than this by `unpack`; Redis refuses about 8,000."""

VALUES_PER_JOB = 3
"""The most fields that one job is spread to: its history and two counters."""

JOBS_LIMIT = 200
"""The most jobs a script looks at in one call: a page of `convict`; all others take 100."""

SETS = {"schedule": "scheduled", "processing": "processing", "dead": "dead"}


def texts() -> Iterator[tuple[str, str]]:
    """Every Lua file by its name, parts included."""
    for folder in (FOLDER, FOLDER / "parts"):
        for entry in folder.iterdir():
            if entry.name.endswith(".lua"):
                yield entry.name, entry.read_text()


def body(script: Script) -> str:
    """The script without its header and parts, and without comments."""
    _, text = parse_header(script.header.name, (FOLDER / f"{script.header.name}.lua").read_text())
    return re.sub(r"--[^\n]*", "", text)


def code(script: Script) -> str:
    """All that runs, without comments."""
    return re.sub(r"--[^\n]*", "", script.source)


def of(transition: Transition) -> Script:
    return SCRIPTS[transition.name]


each_transition = pytest.mark.parametrize("transition", [*TRANSITIONS, *REPAIRS], ids=lambda t: t.name)
each_script = pytest.mark.parametrize("script", EVERY.values(), ids=EVERY.keys())


# -- the table itself


@each_transition
def test_moves_lead_between_places(transition: Transition) -> None:
    assert transition.moves
    assert {place for move in transition.moves for place in move} <= set(PLACES)
    assert ("absent", "absent") not in transition.moves


def test_names_are_used_once_and_every_place_can_be_reached_and_left() -> None:
    assert len(BY_NAME) == len(TRANSITIONS)
    moves = [move for transition in TRANSITIONS for move in transition.moves if move[0] != move[1]]
    assert {start for start, _ in moves} == {end for _, end in moves} == set(PLACES)


def test_only_fenced_moves_and_claims_take_a_job_out_of_processing() -> None:
    """One live lease: whoever ends or moves a run shows the lease's token."""
    leaving = {
        t.name for t in TRANSITIONS for start, end in t.moves if start == "processing" and end != start
    }
    assert leaving == {t.name for t in TRANSITIONS if t.fenced} - {"extend"}
    staying = {t.name for t in TRANSITIONS if ("processing", "processing") in t.moves}
    assert staying == {"claim", "extend", "convict"}


def test_every_settlement_is_a_fenced_transition() -> None:
    ends = {
        Acked: ("ack", "absent"),
        Deferred: ("retry", "scheduled"),
        Released: ("release", "scheduled"),
        Buried: ("bury", "dead"),
    }
    for name, place in ends.values():
        assert BY_NAME[name].fenced
        assert BY_NAME[name].moves == (("processing", place),)


# -- memory


@each_transition
def test_memory_has_a_method_for_each_transition(transition: Transition) -> None:
    assert inspect.isfunction(getattr(Shard, transition.name, None))


# -- headers of the scripts


@each_transition
def test_the_header_has_the_moves_of_the_table(transition: Transition) -> None:
    assert set(of(transition).header.moves) == set(transition.moves)


def test_scripts_that_are_no_transition_move_nothing() -> None:
    for name, script in SCRIPTS.items():
        if name not in {*BY_NAME, *(repair.name for repair in REPAIRS)}:
            assert script.header.moves == ()


@each_transition
def test_fenced_scripts_compare_tokens_and_take_them_for_every_job(transition: Transition) -> None:
    header = of(transition).header
    assert ("token" in header.parts) is transition.fenced
    if transition.fenced:
        assert header.each[:2] == ("ids", "tokens")
        assert "lease" in header.keys


@each_transition
def test_scripts_that_drain_begin_with_the_write_that_needs_no_memory(transition: Transition) -> None:
    parts = of(transition).header.parts
    assert ("drain" in parts) is transition.drains
    if transition.drains:
        assert parts[0] == "drain"


def test_the_draining_write_comes_before_every_other_call() -> None:
    for script in SCRIPTS.values():
        if script.drains:
            first = re.search(r"redis\.p?call\([^)]*\)", code(script))
            assert first is not None
            assert first.group() == "redis.call('HDEL', lease, '')"


@each_transition
def test_repeatable_scripts_keep_their_answer_under_the_call_id(transition: Transition) -> None:
    script = of(transition)
    assert ("turn" in script.header.keys) is transition.repeats
    if transition.repeats:
        assert script.header.args[0] == "call"
        assert re.search(r"redis\.call\('SET', turn, call \.\. ", body(script))


@each_script
def test_a_header_says_what_it_needs(script: Script) -> None:
    header = script.header
    assert header.says
    assert header.returns
    assert len(set(header.keys)) == len(header.keys)
    source = code(script)
    names = (*header.keys, *header.args, *header.each)
    unused = [name for name in names if len(re.findall(rf"\b{name}\b", source)) < 2]
    assert not unused


@each_script
def test_a_script_moves_jobs_only_between_the_places_of_its_header(script: Script) -> None:
    source = code(script)
    added = set(re.findall(r"redis\.call\('ZADD', (schedule|processing|dead)\b", source))
    removed = set(re.findall(r"redis\.call\('ZREM(?:RANGEBYRANK)?', (schedule|processing|dead)\b", source))
    moves = script.header.moves
    assert {SETS[name] for name in added} == {end for _, end in moves} - {"absent"}
    leaving = {start for start, end in moves if start != end} - {"absent"}
    # To be put back under another number, a member leaves the schedule first.
    renumbered = {"scheduled"} if "schedule" in added and re.search(r"\bnumber\(", source) else set[str]()
    assert leaving <= {SETS[name] for name in removed} <= leaving | renumbered


# -- keys


def test_all_keys_of_a_shard_share_one_tag() -> None:
    for shard in (None, 3):
        keys = ShardKeys("orders", shard=shard)
        tag = b"{orders}" if shard is None else b"{orders/3}"
        names = [keys.named(name) for name in KINDS]
        names += [keys.turn("sender", "claim"), keys.wake.encode(), keys.wake_all.encode()]
        for name in names:
            assert name.count(b"{") == name.count(b"}") == 1
            assert tag in name
        assert len(set(names)) == len(names)


@each_script
def test_scripts_touch_only_keys_they_declare(script: Script) -> None:
    header = script.header
    assert set(header.keys) <= {*KINDS, "turn", "set"}
    source = code(script)
    touched = set(re.findall(r"redis\.p?call\('[A-Z]+', ([a-z_0-9]+)", source)) - {"NUMSUB"}
    rings = ({"done0", "done1", "done2"}, {"past0", "past1", "past2"})
    local_names = {"bucket"} if any(ring <= set(header.keys) for ring in rings) else set[str]()
    assert touched <= set(header.keys) | local_names
    assert not re.search(r"redis\.p?call\('[A-Z]+', ['\"]", source.replace("'PUBSUB', NUMSUB", ""))


# -- bounds


def test_scripts_look_at_a_bounded_number_of_jobs() -> None:
    """Every range has a limit; `SCAN`, `KEYS` and readers of a whole hash do not occur."""
    for name, text in texts():
        plain = re.sub(r"--[^\n]*", "", text)
        assert not re.search(r"'(KEYS|SCAN|[HZS]SCAN|HGETALL|HKEYS|HVALS|SMEMBERS)'", plain), name
        for call in re.findall(r"redis\.call\('Z(?:REV)?RANGEBYSCORE'[^)]*\)", plain):
            assert "'LIMIT'" in call, name
        for call in re.findall(r"redis\.call\('Z(?:REV)?RANGE'[^)]*\)", plain):
            assert "-1" not in call, name


def test_what_is_spread_into_one_call_is_capped() -> None:
    """`unpack` of lists whose length follows from a batch, and nowhere of what a key happens to hold."""
    assert JOBS_LIMIT * VALUES_PER_JOB <= SPREAD_LIMIT
    arguments = {"KEYS", "ARGV", "ids", "asked", "wanted", "buckets"}
    of_a_page = {"page", "held", "channels"}
    of_a_batch = {"going", "gone", "scores", "fields", "marks", "tokens", "leaving", "names", "ends"}
    of_a_batch |= {"members", "entry", "held"}
    capped = arguments | of_a_page | of_a_batch
    for name, text in texts():
        plain = re.sub(r"--[^\n]*", "", text)
        for spread in re.findall(r"unpack\((\w+)", plain):
            assert spread in capped, f"{name} spreads {spread}: is its length limited?"


def test_no_policy_in_lua() -> None:
    for name, text in texts():
        assert "cjson" not in text, name
        assert "cmsgpack" not in text, name
        assert not text.startswith("#!"), name


def test_messages_go_out_where_a_refusal_does_no_harm() -> None:
    """A user without rights for channels must not get an error after the job was written."""
    for name, text in texts():
        plain = re.sub(r"--[^\n]*", "", text)
        assert not re.search(r"redis\.call\((PUBLISH|'PUBSUB'|'PUBLISH')", plain), name


@each_script
def test_time_is_read_once(script: Script) -> None:
    """Before Redis 7.2 it moves on while a script runs."""
    assert code(script).count("'TIME'") <= 1
