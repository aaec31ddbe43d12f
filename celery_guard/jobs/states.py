"""States of a job and the moves between them, as data (docs and tests are made from it)."""

from __future__ import annotations

import dataclasses

from django.db.models import TextChoices


class State(TextChoices):
    """Where a job stands."""

    WAITING = "waiting"
    RUNNING = "running"
    RECONCILING = "reconciling"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    DEAD = "dead"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    SUPERSEDED = "superseded"


TERMINAL = (
    State.SUCCEEDED,
    State.FAILED,
    State.DEAD,
    State.CANCELLED,
    State.EXPIRED,
    State.SUPERSEDED,
)
DEAD_LETTERS = (State.FAILED, State.DEAD)
RERUNNABLE = (State.FAILED, State.DEAD, State.CANCELLED, State.EXPIRED)


class Reason(TextChoices):
    """Why a job waits, or why it ended as it did: a code for machines."""

    NEW = "new"
    ETA = "eta"
    RETRY = "retry"
    RETRY_BUDGET = "retry_budget"
    SNOOZE = "snooze"
    RATE = "rate"
    BREAKER = "breaker"
    TENANT = "tenant"
    FOLLOWER = "follower"
    PAUSED = "paused"
    LOST = "lost"
    SHUTDOWN = "shutdown"
    UNCERTAIN = "uncertain"
    REPLAY = "replay"
    OUTAGE = "outage"
    DONE = "done"
    ECHO = "echo"
    COALESCED = "coalesced"
    PERMANENT = "permanent"
    UNKNOWN_ERROR = "unknown_error"
    TIMED_OUT = "timed_out"
    BUDGET = "budget"
    POISON = "poison"
    UNSENDABLE = "unsendable"
    MISFIT = "misfit"
    UNKNOWN_TASK = "unknown_task"
    UNDECODABLE = "undecodable"
    REJECTED = "rejected"
    CANCEL = "cancel"
    EXPIRED = "expired"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One allowed change of state: from where, to where, by whom, under which guard."""

    name: str
    before: tuple[State, ...]
    after: State
    by: str
    guard: str


MOVES: tuple[Move, ...] = (
    Move(
        name="enqueue",
        before=(),
        after=State.WAITING,
        by="enqueue, in the caller's transaction",
        guard="no job has this task and key",
    ),
    Move(
        name="release",
        before=(State.WAITING,),
        after=State.WAITING,
        by="the lane's leading relay",
        guard="not sent, due",
    ),
    Move(
        name="unsend",
        before=(State.WAITING,),
        after=State.WAITING,
        by="a relay whose publish failed, a worker that refuses",
        guard="sent at the time that this sender wrote",
    ),
    Move(
        name="put_aside",
        before=(State.WAITING,),
        after=State.WAITING,
        by="the lane's leading relay, a worker",
        guard="a hold in force covers it",
    ),
    Move(
        name="bring_back",
        before=(State.WAITING,),
        after=State.WAITING,
        by="the lane's leading relay",
        guard="put aside under a hold that was ended",
    ),
    Move(
        name="claim",
        before=(State.WAITING,),
        after=State.RUNNING,
        by="worker",
        guard="sent, not expired, not held, no other job of its coalesce key runs",
    ),
    Move(
        name="succeed",
        before=(State.RUNNING,),
        after=State.SUCCEEDED,
        by="owner, in the business transaction",
        guard="fence and owner",
    ),
    Move(
        name="put_back",
        before=(State.RUNNING,),
        after=State.WAITING,
        by="owner",
        guard="fence and owner",
    ),
    Move(
        name="fail",
        before=(State.RUNNING,),
        after=State.FAILED,
        by="owner",
        guard="fence and owner",
    ),
    Move(
        name="kill",
        before=(State.RUNNING,),
        after=State.DEAD,
        by="owner or rescuer",
        guard="fence and owner",
    ),
    Move(
        name="rescue",
        before=(State.RUNNING,),
        after=State.WAITING,
        by="rescuer",
        guard="lease over, the same fence",
    ),
    Move(
        name="park",
        before=(State.WAITING,),
        after=State.FAILED,
        by="the relay, for a message no broker can take; a worker, for one nobody can run",
        guard="waiting",
    ),
    Move(
        name="reconcile",
        before=(State.RUNNING,),
        after=State.RECONCILING,
        by="owner",
        guard="fence and owner; an effect was sent and has no answer",
    ),
    Move(
        name="look_again",
        before=(State.RECONCILING,),
        after=State.WAITING,
        by="reconciler, or a person who settled its effects",
        guard="reconciling; an effect is due for a look, or none is open",
    ),
    Move(
        name="stop",
        before=(State.RUNNING,),
        after=State.CANCELLED,
        by="owner, at a checkpoint",
        guard="fence and owner; a cancel was asked for",
    ),
    Move(
        name="expire",
        before=(State.WAITING,),
        after=State.EXPIRED,
        by="relay or worker",
        guard="past its expiry by the database's clock",
    ),
    Move(
        name="supersede",
        before=(State.WAITING, *RERUNNABLE),
        after=State.SUPERSEDED,
        by="the lane's leading relay, at the release; a replay after a newer success",
        guard="a newer request of its coalesce key speaks for it; never once it is sent",
    ),
    Move(
        name="step_in",
        before=(State.SUPERSEDED,),
        after=State.WAITING,
        by="whoever cancels the job that spoke for it",
        guard="the newest of those folded into the cancelled job",
    ),
    Move(
        name="cancel",
        before=(State.WAITING,),
        after=State.CANCELLED,
        by="status resource, admin; whoever puts back a job that was asked to stop",
        guard="waiting",
    ),
    Move(
        name="replay",
        before=RERUNNABLE,
        after=State.WAITING,
        by="enqueue over an ended job, admin, a bulk replay",
        guard="ended without success; by an operator: no effect without an answer",
    ),
)
