"""Logs made by hand: a small engine-shaped builder that knows the log's form, and no scheduler.

It shares nothing with the auditor. Digests come from the log's own code, so that two
implementations of the chain meet in every test.
"""

from __future__ import annotations

import json
from random import Random

import msgspec

from rlt_fsm import moves
from rlt_fsm.config import EngineConfig, from_mapping, to_json
from rlt_fsm.log.digest import FIRST_DIGEST, step_digest
from rlt_fsm.log.event_log import EventLog
from rlt_fsm.log.port import EventRow, EventStore, RequestRow, RunHeader, StepRow
from rlt_fsm.params import SamplingParams
from rlt_fsm.states import OPERATION_OF, WorkKey

TEXTS = [moves.describe(move) for move in moves.MOVES]
MODEL = {
    "depths": 4,
    "planes": 4,
    "vocab_size": 512,
    "max_model_len": 4096,
    "eos_token_ids": [0],
}


class Handmade:
    """Writes one run, call by call: `begin_step`, events in their order, `end_step`, `close`."""

    def __init__(
        self, store: EventStore | None = None, *, planes: int = 4, **config: dict[str, object]
    ) -> None:
        self.store = EventLog.memory() if store is None else store
        self.config: EngineConfig = from_mapping(config)
        assert self.config.cache.num_blocks is not None
        self.model = {**MODEL, "planes": planes}
        text = to_json(self.config)
        named = json.dumps({"name": "handmade", **self.model})
        header = RunHeader("2024-01-01T00:00:00Z", 1, "0", "unknown", text, named, None)
        self.writer = self.store.begin_run(header)
        self.seq = self.step = self.ticket = 0
        self.digest = FIRST_DIGEST
        self.names: list[str] = []
        self.joint: list[int] = []
        self.spec: list[tuple[str, int, int, SamplingParams]] = []  # id, generation, prompt_len
        self.blocks: list[tuple[int, ...]] = []
        self.rows: list[int | None] = []  # state rows
        self.free_blocks = list(range(self.config.cache.num_blocks))
        self.free_rows = list(range(self.config.scheduler.max_num_seqs))
        self.generations: dict[str, int] = {}
        self.last_ended = 0
        self.step_events: list[EventRow] = []
        self.new_requests: list[RequestRow] = []
        self.selected: list[tuple[WorkKey, int]] = []
        self.step_ticket: int | None = None
        self.cause: dict[object, int] = {}
        self.begin_step(0)
        self.event("open", extra={"config": json.loads(text), "model": self.model})

    # ---- rows --------------------------------------------------------------------------------

    def event(
        self,
        trigger: str,
        ref: int | None = None,
        *,
        ticket: int | None = None,
        abcde: tuple[object, ...] = (None,) * 5,
        extra: dict[str, object] | None = None,
        reason: str | None = None,
        cause: int | None = None,
    ) -> int:
        self.seq += 1
        if ref is None:
            move, blocks = moves.PLAIN_MOVE[trigger], None
        else:
            move = moves.fire(self.joint[ref], trigger)
            self.joint[ref] += moves.CHANGE[move]
            blocks = len(self.blocks[ref])
        text = None if extra is None else json.dumps(extra)
        row = EventRow(
            self.seq, self.step, ticket, self.seq * 1000, ref, move, blocks, cause, reason,
            *abcde, text,
        )  # fmt: skip
        self.step_events.append(row)
        return self.seq

    def begin_step(self, number: int) -> None:
        self.step = number
        self.step_events, self.new_requests = [], []
        self.step_ticket = None

    def end_step(self) -> None:
        events = self.step_events
        self.digest = step_digest(self.digest, self.step, events, self.names, TEXTS)
        statuses = [moves.STATUS_OF[joint] for joint in self.joint]
        first = events[0].seq if events else self.seq + 1
        row = StepRow(
            self.step, first, self.seq, self.step_ticket, statuses.count("WAITING"),
            sum(moves.SLOT_OF[joint] == "HELD" for joint in self.joint),
            len(self.free_blocks), 0, 0, self.digest,
        )  # fmt: skip
        self.writer.write(events, self.new_requests, [row])
        self.writer.commit()

    # ---- a request's life --------------------------------------------------------------------

    def _add(self, request_id: str, prompt_len: int, params: SamplingParams) -> tuple[int, str]:
        ref = len(self.names)
        generation = self.generations[request_id] = self.generations.get(request_id, 0) + 1
        self.names.append(f"{request_id}#{generation}")
        self.joint.append(moves.INITIAL)
        self.spec.append((request_id, generation, prompt_len, params))
        self.blocks.append(())
        self.rows.append(None)
        self.new_requests.append(RequestRow(ref, request_id, generation))
        return ref, msgspec.json.encode(params).decode()

    def submit(self, request_id: str, prompt_len: int, **params: object) -> int:
        ref, text = self._add(request_id, prompt_len, SamplingParams(**params))  # type: ignore[arg-type]
        data = {"prompt_token_ids": [1] * prompt_len, "params": json.loads(text)}
        self.cause["submit", ref] = self.event("submit", ref, extra=data)
        return ref

    def refuse(self, request_id: str, prompt_len: int = 1) -> None:
        ref, text = self._add(request_id, prompt_len, SamplingParams())
        data = {"prompt_token_ids": [1] * prompt_len, "params": json.loads(text)}
        self.event("refuse", ref, extra=data, reason="duplicate")

    def need(self, ref: int) -> int:
        _, _, prompt_len, params = self.spec[ref]
        tokens = prompt_len + params.max_tokens - 1
        return -(-tokens // self.config.cache.block_size) * self.model["planes"]

    def admit(self, ref: int) -> None:
        need = self.need(ref)
        take, self.free_blocks = self.free_blocks[:need], self.free_blocks[need:]
        self.blocks[ref] = tuple(take)
        self.rows[ref] = self.free_rows.pop(0)
        data = {"need": need, "cached_tokens": 0, "state_row": self.rows[ref], "take": take}
        cause = self.cause["submit", ref]
        seq = self.event("admit:PROMPT_ATOMIC", ref, extra=data, cause=cause)
        self.cause["queued", ref] = seq

    def select(
        self, ref: int, start: int, count: int = 1, depth: int | None = None, replay: int = 0
    ) -> None:
        key = WorkKey(moves.WORK_OF[self.joint[ref]].partition(":")[2])
        row = len(self.selected)
        self.event(
            "select",
            ref,
            ticket=self.ticket + 1,
            abcde=(row, start, count, depth, replay),
            cause=self.cause["queued", ref],
        )
        self.selected.append((key, count))

    def submit_batch(self) -> None:
        self.ticket += 1
        self.step_ticket = self.ticket
        keys = sorted({key.value for key, _ in self.selected})
        data = {
            "operation": OPERATION_OF[WorkKey(keys[0])].value,
            "works": keys,
            "rows": len(self.selected),
            "tokens": sum(count for _, count in self.selected),
        }
        seq = self.event("submit_batch", ticket=self.ticket, extra=data, reason="first")
        self.cause["batch"] = seq
        self.selected = []

    def complete_batch(self) -> None:
        seq = self.event("complete_batch", ticket=self.ticket, cause=self.cause["batch"])
        self.cause["result"] = seq

    def output(self, ref: int, idx: int, token_id: int, exit_depth: int) -> None:
        abcde = (idx, token_id, exit_depth, None, None)
        self.cause["output", ref] = self.event(
            "output", ref, ticket=self.ticket, abcde=abcde, cause=self.cause["result"]
        )

    def enqueue(self, ref: int, key: str, exit_depth: int | None = None) -> None:
        self.cause["queued", ref] = self.event(
            f"enqueue:{key}",
            ref,
            ticket=self.ticket,
            abcde=(exit_depth, None, None, None, None),
            cause=self.cause["result"],
        )

    def finish(self, ref: int, finish_reason: str) -> None:
        data: dict[str, object] = {"finish_reason": finish_reason}
        cause = self.cause["output", ref]
        seq = self.event("finish", ref, ticket=self.ticket, extra=data, cause=cause)
        self.cause["end", ref] = seq

    def abort(self, ref: int) -> None:
        self.cause["end", ref] = self.event("abort:FINISHED", ref)

    def retire_batch(self) -> None:
        self.event("retire_batch", ticket=self.ticket, cause=self.cause["result"])

    def retire(self, ref: int) -> None:
        drop, self.blocks[ref] = self.blocks[ref], ()
        self.free_blocks = [*drop, *self.free_blocks]
        if self.rows[ref] is not None:
            self.free_rows.append(self.rows[ref])
        self.rows[ref] = None
        extra = {"drop": drop} if drop else None
        self.event("retire", ref, extra=extra, cause=self.cause["end", ref])

    def close(self) -> None:
        self.begin_step(self.step + 1)
        for ref, joint in enumerate(self.joint):
            if moves.STATUS_OF[joint] in ("WAITING", "ACTIVE"):
                self.abort(ref)
                self.retire(ref)
        self.event("close", extra={"outcome": "drained"})
        self.end_step()
        self.writer.end("drained", "2024-01-01T00:00:01Z")


class Driver:
    """Drives a `Handmade` like a plain first-come engine: admit, prompt, decode, retire."""

    def __init__(self, log: Handmade, seed: int = 0) -> None:
        self.log = log
        self.random = Random(seed)
        self.waiting: list[int] = []
        self.loops: dict[int, int] = {}
        self.exit: dict[int, int] = {}
        self.outputs: dict[int, int] = {}
        self.prefilled: dict[int, int] = {}
        self.is_due = False  # a decode loop, since prompts had a batch

    def add(self, request_id: str, prompt_len: int, **params: object) -> int:
        ref = self.log.submit(request_id, prompt_len, **params)
        self.waiting.append(ref)
        self.outputs[ref] = self.prefilled[ref] = 0
        return ref

    def drop(self, ref: int) -> None:
        """Abort and retire at once."""
        if ref in self.waiting:
            self.waiting.remove(ref)
        self.log.abort(ref)
        self.log.retire(ref)

    def run(self) -> None:
        """Step until nobody is left; the current step is open and may hold arrivals."""
        while self._turn():
            self.log.begin_step(self.log.step + 1)

    def _turn(self) -> bool:
        log = self.log
        while self.waiting and log.free_rows and log.need(self.waiting[0]) <= len(log.free_blocks):
            log.admit(self.waiting.pop(0))
        batch = self._choose()
        if not batch:
            if log.step_events:
                log.end_step()
            return False
        log.submit_batch()
        log.complete_batch()
        for ref, key in batch:
            if key == "DECODE_CODA":
                log.output(ref, self.outputs[ref], self.random.randint(1, 511), self.exit[ref])
                self.outputs[ref] += 1
        ended = [ref for ref, key in batch if self._interpret(ref, key)]
        log.retire_batch()
        for ref in ended:
            log.retire(ref)
        log.end_step()
        return True

    def _choose(self) -> list[tuple[int, str]]:
        queued: dict[str, list[int]] = {}
        for ref, joint in enumerate(self.log.joint):
            state, _, key = moves.WORK_OF[joint].partition(":")
            if state == "QUEUED":
                queued.setdefault(key, []).append(ref)
        last = ("PROMPT_ATOMIC", "DECODE_RECURRENT")
        for key in ("DECODE_PRELUDE", "DECODE_CODA", *(last[::-1] if self.is_due else last)):
            if key in queued:
                self.is_due = key == "PROMPT_ATOMIC" or (self.is_due and key != last[1])
                return [(ref, key) for ref in queued[key] if self._select(ref, key)]
        return []

    def _select(self, ref: int, key: str) -> bool:
        log, scheduler = self.log, self.log.config.scheduler
        _, _, prompt_len, _ = log.spec[ref]
        budget = scheduler.max_num_batched_tokens - sum(count for _, count in log.selected)
        position = prompt_len - 1 + self.outputs[ref]
        if budget <= 0:
            return False
        if key == "PROMPT_ATOMIC":
            start = self.prefilled[ref]
            count = min(budget, scheduler.prefill_chunk_size, prompt_len - start)
            log.select(ref, start, count)
            self.prefilled[ref] = start + count
        elif key == "DECODE_RECURRENT":
            log.select(ref, position, depth=self.loops[ref])
        else:
            log.select(ref, position)
        return True

    def _interpret(self, ref: int, key: str) -> bool:
        """What a row's result leads to; whether the request has ended."""
        log = self.log
        _, _, prompt_len, params = log.spec[ref]
        if key == "PROMPT_ATOMIC":
            if self.prefilled[ref] < prompt_len:
                log.enqueue(ref, "PROMPT_ATOMIC")
            else:
                self.exit[ref] = 4
                log.enqueue(ref, "DECODE_CODA", 4)
        elif key == "DECODE_PRELUDE":
            self.loops[ref] = 0
            is_free = params.exit_threshold < 1
            self.exit[ref] = self.random.randint(params.min_loops, 4) if is_free else 4
            log.enqueue(ref, "DECODE_RECURRENT")
        elif key == "DECODE_RECURRENT":
            self.loops[ref] += 1
            if self.loops[ref] == self.exit[ref]:
                log.enqueue(ref, "DECODE_CODA", self.exit[ref])
            else:
                log.enqueue(ref, "DECODE_RECURRENT")
        elif self.outputs[ref] == params.max_tokens:
            log.finish(ref, "length")
            return True
        else:
            log.enqueue(ref, "DECODE_PRELUDE")
        return False


def small_run(store: EventStore | None = None) -> Handmade:
    """Five requests on three slots and a tight pool: chunks, waiting, abort, refusal, id reuse."""
    log = Handmade(
        store,
        scheduler={"max_num_seqs": 3, "max_num_batched_tokens": 6, "prefill_chunk_size": 4},
        cache={"num_blocks": 60, "block_size": 2},
    )
    driver = Driver(log)
    for name, prompt_len, max_tokens in (("a", 5, 4), ("b", 3, 2), ("c", 9, 3)):
        driver.add(name, prompt_len, max_tokens=max_tokens, exit_threshold=0.5)
    log.refuse("a")
    gone = driver.add("d", 4)
    driver.drop(gone)
    driver.run()
    driver.add("a", 2, max_tokens=2)
    driver.add("d", 7, max_tokens=1)
    driver.run()
    log.step -= 1
    log.close()
    return log
