"""Tokens: only what the issuer signed, for us and now, is believed; no flood of them fetches keys again and again."""

import asyncio
import base64
import contextlib
import functools
import hashlib
import hmac
import json
import threading
import warnings
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from leased.errors import InvalidRequest, StoreUnavailable, Unauthenticated
from leased.server.key_sets import FRESH, PAUSE, STALE, KeySet, fetch_from, read_key_set
from leased.server.principals import Principal
from leased.server.tokens import Issuer, Tokens
from tests.server.access.test_limits import Watch

NONSENSE = ("", ".", "..", "a.b.c", "lk_", "\x00.\x00.\x00", "e30.e30.e30", "é.é.é", f"{'[' * 4000}..", "W10.e30.")
ISSUER = Issuer("https://id.example", "leased", project="p")


@functools.cache
def private(name: str) -> Any:
    """A private key, made once."""
    if name.startswith("rsa"):
        return rsa.generate_private_key(65537, 1024 if name == "rsa-short" else 2048)
    if name == "ec":
        return ec.generate_private_key(ec.SECP256R1())
    if name == "ec-384":
        return ec.generate_private_key(ec.SECP384R1())
    return ed25519.Ed25519PrivateKey.generate()


def public(name: str, **more: Any) -> dict[str, Any]:
    """Its public half as an entry of a key set."""
    algorithm: Any = {"rsa": RSAAlgorithm, "ec": ECAlgorithm}.get(name.partition("-")[0], OKPAlgorithm)
    return {**algorithm.to_jwk(private(name).public_key(), as_dict=True), "kid": name, "use": "sig", **more}


def claims(**changed: Any) -> dict[str, Any]:
    """The claims of a good token; `None` leaves one out."""
    good = {"iss": ISSUER.issuer, "aud": "leased", "sub": "ada", "exp": 1060, "iat": 1000, **changed}
    return {name: value for name, value in good.items() if value is not None}


def signed(key: str = "rsa", algorithm: str = "RS256", *, header: dict[str, Any] | None = None, **changed: Any) -> str:
    """A token signed by a key."""
    return jwt.encode(claims(**changed), private(key), algorithm, headers={"kid": key, **(header or {})})


class Source:
    """A key set that counts how often it is fetched, and can fail."""

    def __init__(self, *keys: dict[str, Any]) -> None:
        self.body = json.dumps({"keys": keys}).encode()
        self.fetches = 0
        self.broken = False

    async def __call__(self) -> bytes:
        self.fetches += 1
        await asyncio.sleep(0)
        if self.broken:
            raise ConnectionRefusedError("no route")
        return self.body


def reader(*keys: dict[str, Any], issuer: Issuer = ISSUER) -> Tokens:
    """What believes tokens signed by these keys."""
    watch = Watch()
    return Tokens(issuer, KeySet(Source(*keys), now=watch), wall=watch)


@pytest.mark.parametrize(("key", "algorithm"), [("rsa", "RS256"), ("ec", "ES256"), ("ed", "EdDSA")])
async def test_a_good_token_stands_for_a_member(key: str, algorithm: str) -> None:
    """V5: id, role and groups come from the claims, the project from the setting."""
    tokens = reader(public("rsa"), public("ec"), public("ed"))
    groups = ["ops", {"name": "dev", "kind": "squad"}]
    found, _ = await tokens.identify(signed(key, algorithm, role="admin", groups=groups, project="q"))
    assert found == Principal(
        "p", "member", "ada", "admin", frozenset({("ops", "group"), ("dev", "squad")}), credential="token"
    )
    await tokens.close()


async def test_claims_can_have_other_names() -> None:
    """V5: issuers call things differently; a role that is none of ours is that of a member."""
    issuer = Issuer(
        "i", "a", project_claim="tenant", user_claim="email", role_claim="r", groups_claim="g", group_kind="team"
    )
    tokens = reader(public("rsa"), issuer=issuer)
    found, _ = await tokens.identify(
        signed(iss="i", aud=["x", "a"], tenant="acme", email="ada@acme", r="superuser", g=["ops"], sub=None)
    )
    assert found == Principal("acme", "member", "ada@acme", "member", frozenset({("ops", "team")}), credential="token")


@pytest.mark.parametrize(
    "changed",
    [
        {"iss": "https://evil.example"},
        {"iss": None},
        {"aud": "other"},
        {"aud": None},
        {"aud": []},
        {"exp": None},
        {"exp": 969},
        {"exp": 970},
        {"exp": "1060"},
        {"exp": True},
        {"exp": 1e400},
        {"nbf": 1031},
        {"nbf": "soon"},
        {"sub": None},
        {"sub": ""},
        {"sub": "1:a"},
        {"sub": 7},
        {"sub": "a\nb"},
        {"groups": "ops"},
        {"groups": [7]},
        {"groups": [{"kind": "team"}]},
        {"groups": [f"g{number}" for number in range(101)]},
    ],
)
async def test_a_token_that_is_not_for_us_now_is_refused(changed: dict[str, Any]) -> None:
    """V5, C171: issuer, audience, time and id must fit; what cannot be read is refused, not guessed."""
    with pytest.raises(Unauthenticated):
        await reader(public("rsa")).identify(signed(**changed))


async def test_clocks_may_differ_a_little() -> None:
    """V5: 30 seconds either way."""
    tokens = reader(public("rsa"))
    assert (await tokens.identify(signed(exp=971, nbf=1030)))[0].id == "ada"


def forged() -> Iterator[tuple[str, str]]:
    """Tokens that somebody made without the issuer's key."""

    def part(value: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()

    body = part(claims(role="owner"))
    for name in ("none", "None", "NONE", "nOnE", ""):
        yield f"alg {name!r}", f"{part({'alg': name, 'kid': 'rsa'})}.{body}."
    pem = (
        private("rsa")
        .public_key()
        .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    modulus = public("rsa")["n"].encode()
    for what, secret in (("PEM", pem), ("modulus", modulus), ("nothing", b"")):
        for algorithm in ("HS256", "hs256"):
            text = f"{part({'alg': algorithm, 'kid': 'rsa'})}.{body}"
            mark = base64.urlsafe_b64encode(hmac.digest(secret, text.encode(), hashlib.sha256)).rstrip(b"=").decode()
            yield f"{algorithm} with {what}", f"{text}.{mark}"
    good = signed()
    head, _, mark = good.split(".")
    yield "changed claims", f"{head}.{body}.{mark}"
    yield "no mark", f"{head}.{body}."
    yield (
        "own key in the header",
        jwt.encode(claims(), private("ed"), "EdDSA", headers={"kid": "rsa", "jwk": public("ed")}),
    )
    yield "own URL in the header", signed("ed", "EdDSA", header={"kid": "rsa", "jku": "http://127.0.0.1:1/keys"})
    yield "another key's id", signed("ec", "ES256", header={"kid": "rsa"})
    yield "a key of another curve", signed("ec-384", "ES384")
    yield "an algorithm that is not allowed", signed("rsa", "RS512")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield "a short key", signed("rsa-short")
    yield "unknown key id", signed(header={"kid": "nobody"})
    yield "key id of another type", f"{part({'alg': 'RS256', 'kid': 7})}.{body}.{mark}"
    yield "no key id", jwt.encode(claims(), private("rsa"), "RS256")
    yield "critical header", signed(header={"crit": ["x"], "x": 1})
    yield "detached", f"{head}..{mark}"
    yield "long", signed(filler="x" * 9000)
    for text in NONSENSE:
        yield f"nonsense {text[:12]!r}", text
    yield "one dot too many", good + "."


async def test_a_forged_token_is_refused() -> None:
    """V5: `alg: none`, key confusion, keys that the token brings, other algorithms and plain nonsense."""
    tokens = reader(public("rsa"), public("ed"), public("ec-384"), public("rsa-short"))
    believed, told = [], []
    for what, token in forged():
        try:
            believed.append((what, (await tokens.identify(token))[0]))
        except Unauthenticated as error:
            told += [what] if token and token in str(error) else []
    assert (believed, told) == ([], [])


@pytest.mark.parametrize(
    "wrong", [{"alg": "RS512"}, {"use": "enc"}, {"kty": "oct"}, {"d": "AA"}, {"n": "AA"}, {"n": "!"}]
)
async def test_a_key_that_is_not_meant_for_this_is_not_used(wrong: dict[str, Any]) -> None:
    """V5: neither a key of another algorithm or use, nor a shared or private one, nor a damaged one."""
    with pytest.raises(Unauthenticated):
        await reader(public("rsa", **wrong)).identify(signed())


async def test_one_key_without_an_id_is_enough() -> None:
    """V5: a set of one key needs no ids."""
    key = public("rsa")
    del key["kid"]
    token = jwt.encode(claims(), private("rsa"), "RS256")
    assert (await reader(key).identify(token))[0].id == "ada"


async def test_unknown_key_ids_fetch_once_in_a_while() -> None:
    """V5: a flood of them makes one request in half a minute, and known keys are found meanwhile."""
    source, watch = Source(public("rsa")), Watch()
    keys = KeySet(source, now=watch)
    assert await keys.find("rsa")
    found = await asyncio.gather(*(keys.find(f"unknown {number}") for number in range(100)))
    assert (set(map(str, found)), source.fetches) == ({"None"}, 1)
    watch.time += PAUSE
    source.body = json.dumps({"keys": [public("rsa"), public("ec")]}).encode()
    await asyncio.gather(*(keys.find(f"unknown {number}") for number in range(100)))
    assert source.fetches == 2
    assert await keys.find("ec")
    assert await keys.find("rsa")
    assert source.fetches == 2


async def test_keys_outlive_their_issuer_for_a_day() -> None:
    """V5: they are fetched anew in the background, and used while that fails, but not for ever."""
    source, watch = Source(public("rsa")), Watch()
    keys = KeySet(source, now=watch)
    assert await keys.find("rsa")
    source.broken = True
    for _ in range(5):
        watch.time += FRESH
        assert await keys.find("rsa")
        while keys._fetching is not None:
            await asyncio.sleep(0)
    assert source.fetches == 6
    watch.time += STALE
    with pytest.raises(StoreUnavailable):
        await keys.find("rsa")
    watch.time += PAUSE
    source.broken = False
    assert await keys.find("rsa")
    source.body = json.dumps({"keys": []}).encode()
    watch.time += FRESH
    assert await keys.find("rsa")
    while keys._fetching is not None:
        await asyncio.sleep(0)
    assert await keys.find("rsa") is None
    await keys.close()


async def test_without_any_keys_nobody_is_told_that_his_token_is_wrong() -> None:
    """S2: an issuer who gives no answer is a failure of ours, and it is not asked again at once."""
    source = Source()
    for broken, body in ((True, b""), (False, b"<html>"), (False, b"[]"), (False, b'{"keys": 7}'), (False, b"\xff")):
        source.broken, source.body, source.fetches = broken, body, 0
        keys = KeySet(source, now=Watch())
        for _ in range(3):
            with pytest.raises(StoreUnavailable):
                await keys.find("rsa")
        assert source.fetches == 1


async def test_a_fetch_that_hangs_ends_with_its_owner() -> None:
    """L11: closing does not wait for an issuer."""
    never = asyncio.Event()

    async def hang() -> bytes:
        await never.wait()
        return b""

    keys = KeySet(hang, now=Watch())
    waiting = asyncio.create_task(keys.find("rsa"))
    await asyncio.sleep(0)
    await keys.close()
    with pytest.raises(StoreUnavailable):
        await waiting


@contextlib.contextmanager
def site(status: int, body: bytes, **headers: str) -> Iterator[str]:
    """A web server that says one thing."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/keys"
        finally:
            server.shutdown()
            thread.join()


async def test_keys_come_from_a_url_or_a_file(tmp_path: Path) -> None:
    """V5: both places; a redirection or an error page is no key set."""
    body = Source(public("rsa")).body
    with site(200, body) as url:
        assert read_key_set(await fetch_from(url)()).keys() == {"rsa"}
    (tmp_path / "keys.json").write_bytes(body)
    assert read_key_set(await fetch_from(str(tmp_path / "keys.json"))()).keys() == {"rsa"}
    with site(302, b"", Location="file:///etc/passwd") as url, pytest.raises(OSError, match="302"):
        await fetch_from(url)()
    with site(500, body) as url, pytest.raises(OSError, match="500"):
        await fetch_from(url)()
    with pytest.raises(OSError):
        await fetch_from(str(tmp_path / "missing.json"))()


@pytest.mark.parametrize("place", ["http://id.example/keys", "ftp://id.example/keys", "file:///etc/keys"])
def test_keys_are_fetched_safely_or_not_at_all(place: str) -> None:
    """SEC18: who can change the answer can sign tokens."""
    with pytest.raises(InvalidRequest):
        fetch_from(place)


@pytest.mark.parametrize(
    "wrong",
    [
        {"issuer": "", "audience": "a"},
        {"issuer": "i", "audience": ""},
        {"issuer": "i", "audience": "a", "algorithms": ("HS256",)},
        {"issuer": "i", "audience": "a", "algorithms": ("none",)},
        {"issuer": "i", "audience": "a", "algorithms": ()},
        {"issuer": "i", "audience": "a", "project": "A B"},
    ],
)
def test_an_issuer_that_could_be_anybody_is_refused(wrong: dict[str, Any]) -> None:
    """V5: issuer, audience and algorithms are pinned."""
    with pytest.raises(InvalidRequest):
        Issuer(**wrong)
