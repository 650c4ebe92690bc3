"""From the settings of a service to who may use it: opens the gate, and the application behind it."""

from __future__ import annotations

import time
from collections.abc import Callable

from leased.aio_clock import LoopClock
from leased.server.app import App
from leased.server.gate import AccessGate, Budgets
from leased.server.holds import HoldsKept
from leased.server.key_sets import KeySet, fetch_from
from leased.server.limits import Budget
from leased.server.policies import Policies
from leased.server.registries import Place, open_registry
from leased.server.routes_manage import manage_routes
from leased.server.service import Service
from leased.server.settings import Settings
from leased.server.tokens import Issuer, Tokens


def make_app(settings: Settings) -> App:
    """The application for these settings: open to everybody, or with credentials where a registry is named.

    Raises `StoreNotUsable` for a registry that cannot be used, `InvalidRequest` for settings that cannot.
    """
    if settings.open:
        return App(Service(settings))
    gate = open_gate(settings)
    holds = gate.registry if isinstance(gate.registry, HoldsKept) else None
    return App(Service(settings, gate=gate, holds=holds), further=manage_routes(gate))


def open_gate(settings: Settings) -> AccessGate:
    """The gate of a service with a registry."""
    now = LoopClock().now
    place = Place(settings.registry, settings.registry_key)
    opened = open_registry(place, begin=False, timeout=settings.registry_timeout)
    return AccessGate(
        opened.registry,
        hasher=opened.hasher,
        shelf=opened.shelf,
        grace=settings.registry_grace,
        wall=time.time,
        now=now,
        tokens=_tokens(settings, now=now) if settings.jwt_issuer else None,
        budgets=Budgets(
            attempts=Budget(settings.member_attempts, 3600.0),
            requests=Budget(settings.project_requests, 60.0),
            failures=Budget(settings.failed_logins, 60.0),
        ),
        audit_required=settings.audit_required,
        check_key=Policies(settings).check_key,
    )


def _tokens(settings: Settings, *, now: Callable[[], float]) -> Tokens:
    issuer = Issuer(
        settings.jwt_issuer,
        settings.jwt_audience,
        algorithms=settings.jwt_algorithms,
        project=settings.jwt_project,
        project_claim=settings.jwt_project_claim,
        user_claim=settings.jwt_user_claim,
        role_claim=settings.jwt_role_claim,
        groups_claim=settings.jwt_groups_claim,
        group_kind=settings.jwt_group_kind,
    )
    return Tokens(issuer, KeySet(fetch_from(settings.jwt_keys), now=now), wall=time.time)
