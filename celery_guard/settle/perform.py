"""One effect, from the wish to the answer: the order of the writes is the whole guarantee."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from kombu.utils import json

from celery_guard.errors import (
    GuardError,
    LeaseLost,
    Permanent,
    RetryAfter,
    Transient,
    UnknownOutcome,
)
from celery_guard.events import emit
from celery_guard.faults import fault_point
from celery_guard.jobs.running import Hold
from celery_guard.jobs.storable import message_of
from celery_guard.settle import moves
from celery_guard.settle.models import Effect
from celery_guard.settle.moves import Wish
from celery_guard.settle.provider import Applied, Finding, NotApplied, StillUnknown
from celery_guard.settle.states import EffectState, Recovery

CERTAIN = 2
"""Look-ups that must all find nothing before "not applied" is believed."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Sending:
    """What the call and the look-up are given.

    ``key`` is the provider's idempotency key: the same in every attempt and replay. ``fence``
    names the attempt. ``again`` says that an earlier call may have arrived.
    """

    name: str
    item: str
    key: str
    fence: int
    again: bool


class Answer(dict[str, Any]):
    """A provider's answer; its fields can be read as attributes too."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


Call = Callable[[Sending], Any]
Find = Callable[[Sending], Finding]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Performance:
    """One attempt's try at one effect."""

    hold: Hold
    wish: Wish
    key: Callable[[int], str]
    call: Call
    find: Find | None

    def run(self) -> Any:
        """The provider's answer, asked for now or long ago.

        :raises LeaseLost: the attempt no longer holds its job; nothing was sent.
        :raises Permanent: the provider has said no for good.
        :raises Transient: nothing happened, or the same call is safe to repeat.
        :raises UnknownOutcome: a call has no answer, and none may be sent before there is one.
        """
        fault_point("settle.preparing", self.hold.job_id)
        effect = moves.prepare(self.hold, self.wish, self.key(0))
        fault_point("settle.prepared", self.hold.job_id)
        if not effect.provider_key:
            effect.provider_key = self.key(effect.version)
            moves.give_key(self.hold.using, effect, effect.provider_key)
        effect = self._same_request(effect)
        match effect.state:
            case EffectState.CONFIRMED:
                return decoded(effect.answer)
            case EffectState.REJECTED:
                raise Permanent(effect.note)
            case EffectState.MANUAL:
                raise UnknownOutcome(f"{self.wish.name}: a person has to decide")
            case EffectState.PREPARED:
                return self._send(effect, again=False)
            case _:
                return self._recover(effect)

    def _same_request(self, effect: Effect) -> Effect:
        if not self.wish.request or effect.request == self.wish.request:
            return effect
        if effect.state == EffectState.REJECTED:
            key = self.key(effect.version + 1)
            moves.ask_anew(self.hold.using, effect, self.wish.request, key)
            return moves.prepare(self.hold, self.wish, key)
        raise GuardError(
            f"{self.wish.name}: this effect was {effect.state} with another request; one that "
            "differs needs an item of its own"
        )

    def _recover(self, effect: Effect) -> Any:
        match self.wish.provider.recovery:
            case Recovery.READ_ONLY:
                return self._send(effect, again=True)
            case Recovery.KEYED if self._key_is_remembered(effect):
                return self._send(effect, again=True)
            case Recovery.KEYED | Recovery.RECONCILABLE if self.find is not None:
                return self._ask(effect)
            case _:
                moves.call_a_person(self.hold.using, effect, "a call has no answer")
                emit("settle.needs_a_person", job=self.hold.job_id, effect=self.wish.name)
                raise UnknownOutcome(f"{self.wish.name}: a person has to decide")

    def _key_is_remembered(self, effect: Effect) -> bool:
        # The call itself takes time, and the provider's clock is not ours.
        last = moves.database_time(self.hold.using, effect) + timedelta(
            seconds=2 * self.wish.provider.timeout
        )
        return effect.key_until is not None and last < effect.key_until

    def _ask(self, effect: Effect) -> Any:
        using, provider = self.hold.using, self.wish.provider
        now = moves.database_time(using, effect)
        sent = effect.sent_at or now
        fault_point("settle.looking_up", self.hold.job_id)
        finding, found, error = self._look_up(effect)
        fault_point("settle.looked_up", self.hold.job_id)
        if found is not None:
            return self._keep(effect, found)
        mature = now - sent > timedelta(seconds=provider.timeout + provider.settle_after)
        looks = effect.looks + (1 if mature and isinstance(finding, NotApplied) else 0)
        if looks >= CERTAIN:
            moves.not_applied(using, effect.pk, note="looked up: not applied")
            return self._send(moves.prepare(self.hold, self.wish, ""), again=False)
        if now - sent > timedelta(seconds=provider.give_up):
            moves.call_a_person(using, effect, "looked up for too long")
            emit("settle.needs_a_person", job=self.hold.job_id, effect=self.wish.name)
        else:
            told = "not known yet" if error is None else _told(error)
            moves.not_known(using, effect, provider, f"looked up: {told}", looks=looks)
        raise UnknownOutcome(f"{self.wish.name}: the provider does not know yet") from error

    def _look_up(self, effect: Effect) -> tuple[Finding, str | None, Exception | None]:
        assert self.find is not None
        try:
            finding = self.find(self._sending(effect, again=True))
            kept = json.dumps(finding.answer) if isinstance(finding, Applied) else None
        except RetryAfter:
            raise
        # Whatever a look-up raises, it has not answered, and the question stays open.
        except Exception as error:  # noqa: BLE001
            told = _told(error)
            emit("settle.no_answer", job=self.hold.job_id, effect=self.wish.name, error=told)
            return StillUnknown(), None, error
        return finding, kept, None

    def _send(self, effect: Effect, *, again: bool) -> Any:
        provider = self.wish.provider
        if not moves.hold_for(self.hold, 2 * provider.timeout):
            raise LeaseLost
        fault_point("settle.sending", self.hold.job_id)
        if not moves.mark_sent(self.hold, effect, provider):
            raise LeaseLost
        fault_point("settle.sent", self.hold.job_id)
        try:
            # An answer that can't be kept is none that a later attempt could be given.
            answer = json.dumps(self.call(self._sending(effect, again=again)))
        except Exception as error:
            fault_point("settle.failing", self.hold.job_id)
            try:
                self._failed(effect, error, again=again)
            finally:
                fault_point("settle.failed", self.hold.job_id)
            raise
        fault_point("settle.answered", self.hold.job_id)
        return self._keep(effect, answer)

    def _sending(self, effect: Effect, *, again: bool) -> Sending:
        return Sending(
            name=self.wish.name,
            item=self.wish.item,
            key=effect.provider_key,
            fence=self.hold.fence,
            again=again,
        )

    def _keep(self, effect: Effect, answer: str) -> Any:
        if not moves.confirm(self.hold.using, effect.pk, answer):
            self._keep_against(effect, answer)
        fault_point("settle.confirmed", self.hold.job_id)
        return decoded(answer)

    def _keep_against(self, effect: Effect, answer: str) -> None:
        # What the provider says of this call outweighs what anybody has decided about it.
        kept = moves.confirm_against(self.hold, effect, answer)
        named = {"job": self.hold.job_id, "effect": self.wish.name, "kept": kept}
        emit("settle.contradicted", logging.WARNING, **named)

    def _failed(self, effect: Effect, error: Exception, *, again: bool) -> None:
        provider, using = self.wish.provider, self.hold.using
        told = _told(error)
        if provider.is_refusal(error):
            moves.reject(using, effect.pk, told)
            if not isinstance(error, Permanent):
                raise Permanent(told) from error
            return
        turned_away = provider.proves_not_sent(error) or provider.asks_for_patience(error)
        if turned_away and not again:
            moves.not_applied(using, effect.pk, note=told)
            if provider.asks_for_patience(error):
                return
            raise Transient(told) from error
        # An earlier call may have arrived: that this one did not proves nothing about that one.
        moves.not_known(using, effect, provider, told)
        emit("settle.no_answer", job=self.hold.job_id, effect=self.wish.name, error=told)
        if provider.asks_for_patience(error):
            return
        if provider.recovery in (Recovery.READ_ONLY, Recovery.KEYED):
            raise Transient(told) from error
        raise UnknownOutcome(told) from error


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {message_of(error)}"[:500]


def decoded(text: str | None) -> Any:
    """A stored answer as the body gets it."""
    answer = None if text is None else json.loads(text)
    return Answer(answer) if isinstance(answer, Mapping) else answer
