"""Tokens (JWT) of one issuer: what they must be to be believed, and whom they stand for. It fetches nothing itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from leased.errors import InvalidRequest, LeasedError, StoreNotUsable, Unauthenticated
from leased.server.credentials import check_groups, check_name, check_user_id
from leased.server.key_sets import KeySet
from leased.server.principals import Principal, Role

ALGORITHMS: Mapping[str, tuple[str, str | None]] = {
    "RS256": ("RSA", None),
    "RS384": ("RSA", None),
    "RS512": ("RSA", None),
    "PS256": ("RSA", None),
    "PS384": ("RSA", None),
    "PS512": ("RSA", None),
    "ES256": ("EC", "P-256"),
    "ES384": ("EC", "P-384"),
    "ES512": ("EC", "P-521"),
    "EdDSA": ("OKP", "Ed25519"),
}
"""Signatures that can be allowed, each with the type and curve of its keys. All are by a private key that the service
does not have: with shared secrets, a public key could be used to sign."""

MAX_TOKEN = 8192
"""Characters of a token."""

LEEWAY = 30.0
"""Seconds by which the issuer's clock and ours may differ."""

_MAX_READ = 100
_FAR = 1e12  # seconds: no instant is as far from the epoch
_ROLES = frozenset({"owner", "admin", "member"})


@dataclass(frozen=True, slots=True)
class Issuer:
    """Whose tokens are believed, and how they are read.

    Tokens stand for members: `user_claim` is their id, `role_claim` their role (any other value: member),
    `groups_claim` a list of names (of the kind `group_kind`) or of objects with `name` and `kind`. They belong to
    `project`, or where that is empty to the one that `project_claim` names.
    """

    issuer: str
    audience: str
    algorithms: tuple[str, ...] = ("RS256", "ES256", "EdDSA")
    project: str = ""
    project_claim: str = "project"
    user_claim: str = "sub"
    role_claim: str = "role"
    groups_claim: str = "groups"
    group_kind: str = "group"

    def __post_init__(self) -> None:
        """Refuse an issuer who could be anybody."""
        if not self.issuer or not self.audience:
            raise InvalidRequest("tokens need an issuer and an audience", hint="without them any token would do")
        unknown = [name for name in self.algorithms if name not in ALGORITHMS]
        if unknown or not self.algorithms:
            raise InvalidRequest(
                f"tokens cannot be signed by {unknown[0] if unknown else 'nothing'}",
                hint=f"choose from {', '.join(ALGORITHMS)}",
            )
        if self.project:
            check_name(self.project, what="project")


class Tokens:
    """Believes tokens of an issuer. `wall` gives seconds since the epoch."""

    def __init__(self, issuer: Issuer, keys: KeySet, *, wall: Callable[[], float]) -> None:
        self._issuer = issuer
        self._keys = keys
        self._wall = wall
        self._read: dict[tuple[str, str], tuple[dict[str, Any], Any]] = {}

    @property
    def mark(self) -> bytes:
        """By which issuer, and how read, tokens are believed: what was believed otherwise has another one."""
        return repr(self._issuer).encode(errors="surrogatepass")

    async def identify(self, token: str) -> tuple[Principal, float]:
        """Whom a token stands for, and until which instant at the most.

        Raises `Unauthenticated`, or `StoreUnavailable` where no keys can be had.
        """
        header = _header(token)
        algorithm, key_id = header.get("alg"), header.get("kid")
        if algorithm not in self._issuer.algorithms or not isinstance(key_id, str | None):
            raise Unauthenticated("the token is signed in a way that is not allowed here")
        key = await self._keys.find(key_id)
        if key is None or not _fits(key, str(algorithm)):
            raise Unauthenticated("the token is signed by a key that its issuer does not name")
        claims = self._verified(token, key, algorithm=str(algorithm))
        return self._principal(claims), self._checked_end(claims)

    async def close(self) -> None:
        """Free what it needed."""
        await self._keys.close()

    def _verified(self, token: str, key: dict[str, Any], *, algorithm: str) -> dict[str, Any]:
        import jwt

        try:
            return jwt.decode(
                token,
                self._readable(key, algorithm),
                algorithms=[algorithm],
                audience=self._issuer.audience,
                issuer=self._issuer.issuer,
                options={
                    "require": ["exp", "iss", "aud", self._issuer.user_claim],
                    "verify_exp": False,  # ours, with our clock, are below
                    "verify_nbf": False,
                    "verify_iat": False,
                    "enforce_minimum_key_length": True,
                },
            )
        except (jwt.exceptions.InvalidAudienceError, jwt.exceptions.InvalidIssuerError) as error:
            raise Unauthenticated("the token is for another audience or of another issuer") from error
        except jwt.exceptions.MissingRequiredClaimError as error:
            raise Unauthenticated(f"the token has no claim {error.claim}") from error
        except (jwt.exceptions.PyJWTError, ValueError, TypeError, RecursionError) as error:
            raise Unauthenticated("the token is not what its issuer signed") from error

    def _readable(self, key: dict[str, Any], algorithm: str) -> Any:
        """The key as the library uses it: reading it takes as long as checking a signature."""
        import jwt

        name = (str(key.get("kid")), algorithm)
        found = self._read.get(name)
        if found is None or found[0] is not key:
            if len(self._read) >= _MAX_READ:
                self._read.clear()
            found = self._read[name] = (key, jwt.PyJWK(key, algorithm))
        return found[1]

    def _checked_end(self, claims: Mapping[str, Any]) -> float:
        """The instant from which the token is believed no more; `Unauthenticated` if it is not believed now."""
        now, end = self._wall(), _instant(claims, "exp") + LEEWAY
        if now >= end:
            raise Unauthenticated("the token has expired", hint="get a new one")
        if "nbf" in claims and now < _instant(claims, "nbf") - LEEWAY:
            raise Unauthenticated("the token is not valid yet", hint="compare the clocks")
        return end

    def _principal(self, claims: Mapping[str, Any]) -> Principal:
        issuer, role = self._issuer, claims.get(self._issuer.role_claim)
        try:
            return Principal(
                project=issuer.project or check_name(claims.get(issuer.project_claim), what="project"),
                kind="member",
                id=check_user_id(claims[issuer.user_claim]),
                role=cast("Role", role) if isinstance(role, str) and role in _ROLES else "member",
                groups=self._groups(claims.get(issuer.groups_claim, [])),
                credential="token",
            )
        except LeasedError as error:
            raise Unauthenticated(f"the token names nobody: {error.message}") from error

    def _groups(self, claim: object) -> frozenset[tuple[str, str]]:
        """Groups that cannot be read are an error: a rule may ask for who is *not* in one."""
        pairs: list[tuple[Any, Any]] = []
        for one in claim if isinstance(claim, list) else [None]:
            if isinstance(one, str):
                pairs.append((one, self._issuer.group_kind))
            elif isinstance(one, dict):
                pairs.append((one.get("name"), one.get("kind", self._issuer.group_kind)))
            else:
                raise Unauthenticated("the token's groups are no list of names")
        return check_groups(pairs)


def _header(token: str) -> dict[str, Any]:
    try:
        import jwt
    except ImportError as error:
        raise StoreNotUsable("tokens need the package PyJWT", hint="pip install 'leased[server]'") from error
    if len(token) > MAX_TOKEN:
        raise Unauthenticated(f"the token has more than {MAX_TOKEN} characters")
    try:
        return jwt.get_unverified_header(token)
    except (jwt.exceptions.PyJWTError, ValueError, TypeError, RecursionError) as error:
        raise Unauthenticated("the credential is neither an API key nor a token") from error


def _fits(key: Mapping[str, Any], algorithm: str) -> bool:
    """Whether a key is of the type that the algorithm needs, and not meant for another one."""
    kind, curve = ALGORITHMS[algorithm]
    return (
        key.get("kty") == kind and (curve is None or key.get("crv") == curve) and key.get("alg", algorithm) == algorithm
    )


def _instant(claims: Mapping[str, Any], name: str) -> float:
    value = claims.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not -_FAR < value < _FAR:
        raise Unauthenticated(f"the token's claim {name} is no instant")
    return float(value)
