"""Receipts of an endpoint (AIIP/HTTPS v1, 3.8), and the signing keys of a fleet (3.9).

Every machine of a fleet signs with its own key, and all publish the same set, which they share in a database.
A new key signs when every copy of the earlier set has expired. A machine that cannot read the set for ten
minutes does not sign: its key may have been revoked meanwhile.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, TypeVar

import msgspec

from onym.ai.endpoint.context import CONTENT_TYPE, Answer, Caller
from onym.ai.messages import RequestHead
from onym.errors import AIIPError, CredentialError, OnymError, SignatureError
from onym.sign import receipts
from onym.sign.keys import MAX_AUTHORITY_KEYS, USUAL_ALGORITHMS, Signer
from onym.sign.keystore import MAX_AGE, KeyRecord, KeyStore, decode_records, encode_key_set, encode_records
from onym.sign.receipts import request_hash
from onym.store import open_shared_store
from onym.store.shared import FOREVER, SharedStore, StoreThread, make_key
from onym.uri.ai import AIURI
from onym.uri.secret import Secret

_LOG: Final = logging.getLogger("onym.ai.endpoint.signing")
#: seconds between two readings of the list
REFRESH_SECONDS: Final = 20.0
#: seconds without the list after which nothing is signed
PATIENCE_SECONDS: Final = 600.0
_KIND: Final = "signing-key"
#: records that are read at once
_PAGE: Final = 200
#: the machine that puts this value announces the first key, which need not wait
_FIRST: Final = "signing-fleet/first"
_T = TypeVar("_T")


class FleetKeys:
    """The keys of this machine and the published keys of all. It is used as a `KeyStore`.

    `keys` is the folder of this machine's keys, or a Signer such as a `PKCS11Signer`. `store` is a file or
    the URL of a database (`onym.store.open_shared_store`). `max_age` is the lifetime of copies of `jwks`.
    `clock` returns seconds since the epoch. Without `background`, the list is read only by `refresh`. Close
    it at the end.

    Raises StoreError if the list cannot be read when it is made, and CredentialError for unusable keys.
    """

    def __init__(
        self,
        keys: KeyStore | Signer | str | Path,
        store: str | Path | Secret,
        *,
        max_age: float = MAX_AGE,
        clock: Callable[[], float] = time.time,
        background: bool = True,
    ) -> None:
        self.max_age = max_age
        self._keys = KeyStore(keys, max_age=max_age) if isinstance(keys, str | Path) else keys
        self._clock = clock
        self._list = _KeyList(store, clock)
        self._lock = threading.Lock()
        self._records: dict[str, KeyRecord] = {}
        self._read_at = float("-inf")
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        try:
            self.refresh()
        except BaseException:
            self._list.close()
            raise
        if background:
            self._thread = threading.Thread(target=self._keep_fresh, name="onym-fleet-keys", daemon=True)
            self._thread.start()

    def refresh(self) -> None:
        """Announce the keys of this machine, and read the list. Raises StoreError, CredentialError."""
        at = self._clock()
        records, refusal = self._list.exchange(self._list_own(), at, self.max_age)
        with self._lock:
            self._records, self._read_at = records, at
        if refusal is not None:
            raise refusal

    def signer(self, at: float) -> Signer:
        """Return the key of this machine that signs at that time.

        Raises CredentialError: `credential.fleet-away` if the list is too old, `credential.fleet-waiting` if
        the copies of the set do not have the key yet, and `credential.no-key`.
        """
        if abs(at - self._read_at) > PATIENCE_SECONDS:
            raise CredentialError(
                "the list of the fleet's keys cannot be read, so this machine's key may be revoked",
                code="credential.fleet-away",
                hint="Check the database of the fleet and this machine's clock.",
            )
        usable: list[KeyRecord] = []
        waiting: list[KeyRecord] = []
        for record in self._list_own():
            announced = self._records.get(record.kid)
            if announced is None or not announced.is_published(at):
                continue
            (usable if announced.starts <= at else waiting).append(announced)
        if usable:
            return self._open_key(max(usable, key=lambda announced: announced.starts).kid)
        if waiting:
            seconds = min(announced.starts for announced in waiting) - at
            raise CredentialError(
                f"callers know the key of this machine in {seconds:.0f} seconds at the latest",
                code="credential.fleet-waiting",
                hint="Run onym ai keys join before the machine serves.",
            )
        raise CredentialError(
            "this machine has no key that the fleet accepts",
            code="credential.no-key",
            hint="See onym ai keys list --fleet URL. If the key is revoked, make a new one.",
        )

    def jwks(self, at: float) -> bytes:
        """Return the key set to publish: the keys of all machines, and the revoked kids."""
        return encode_key_set(self._sort_records(), lambda record: record.is_published(at))

    def history(self, at: float) -> bytes:
        """Return the key set for auditors: every key that was ever announced."""
        return encode_key_set(self._sort_records(), lambda record: record.created <= at, past=True)

    def list_own(self) -> list[KeyRecord]:
        """Return this machine's keys as they were announced."""
        return [self._records[record.kid] for record in self._list_own() if record.kid in self._records]

    def close(self) -> None:
        """End the thread and close the database."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()
        self._list.close()

    def __enter__(self) -> FleetKeys:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _list_own(self) -> Iterable[KeyRecord]:
        if isinstance(self._keys, KeyStore):
            return self._keys.records()
        at, signer = self._clock(), self._keys
        kid = str(signer.kid)
        return [KeyRecord(kid=kid, algorithm=signer.algorithm, public=signer.public(), created=at, starts=at)]

    def _open_key(self, kid: str) -> Signer:
        return self._keys.open_key(kid) if isinstance(self._keys, KeyStore) else self._keys

    def _sort_records(self) -> tuple[KeyRecord, ...]:
        return tuple(sorted(self._records.values(), key=lambda record: (record.created, record.kid)))

    def _keep_fresh(self) -> None:
        failed = False
        while not self._stopped.wait(REFRESH_SECONDS):
            try:
                self.refresh()
            except Exception as error:  # noqa: BLE001 - the thread notices revocations, so it must not end
                if not failed:  # said once, until it succeeds again
                    known = error if isinstance(error, OnymError) else None
                    reason = f"{known.message} ({known.code})" if known else type(error).__name__
                    _LOG.warning("the fleet's keys cannot be read: %s", reason, exc_info=known is None)
                failed = True
            else:
                failed = False


class _KeyList:
    """The announced keys in a shared store, for threads."""

    def __init__(self, url: str | Path | Secret, clock: Callable[[], float]) -> None:
        self._store: SharedStore = open_shared_store(url, clock=clock)
        self._thread = StoreThread()

    def exchange(
        self, own: Iterable[KeyRecord], at: float, max_age: float
    ) -> tuple[dict[str, KeyRecord], CredentialError | None]:
        """Announce what is new or changed of these keys. Return all keys by their kid, and why one is not."""
        return self._run(self._exchange(tuple(own), at, max_age))

    def read(self) -> dict[str, KeyRecord]:
        """Return all keys by their kid."""
        return self._run(self._read())

    def revoke(self, kid: str, at: float) -> None:
        """Revoke a key for all machines. Raises CredentialError `credential.no-key`."""
        self._run(self._revoke(kid, at))

    def close(self) -> None:
        """Close the store and end the thread."""
        self._run(self._store.close())
        self._thread.close()

    def _run(self, work: Coroutine[Any, Any, _T]) -> _T:
        return self._thread.run(work)

    async def _read(self) -> dict[str, KeyRecord]:
        prefix, records = f"{_KIND}/", dict[str, KeyRecord]()
        found = await self._store.find(prefix, limit=_PAGE)
        while found:
            for _, value in found:
                for record in decode_records(value.value, "the list of the fleet's keys"):
                    records[record.kid] = record
            found = await self._store.find(prefix, limit=_PAGE, after=found[-1][0])
        return records

    async def _exchange(
        self, own: tuple[KeyRecord, ...], at: float, max_age: float
    ) -> tuple[dict[str, KeyRecord], CredentialError | None]:
        known, refusal = await self._read(), None
        for record in own:
            if record.kid not in known:
                try:
                    await self._announce(record, known, at, max_age)
                except CredentialError as error:
                    refusal = error  # the earlier keys go on
            else:
                await self._change(record.kid, lambda old, new=record: _merge(old, new))  # type: ignore[misc]
        return (await self._read() if own else known), refusal

    async def _announce(
        self, record: KeyRecord, known: dict[str, KeyRecord], at: float, max_age: float
    ) -> None:
        published = sum(other.is_published(at) for other in known.values())
        if published >= MAX_AUTHORITY_KEYS:
            raise CredentialError(
                f"the fleet publishes {published} keys, and callers accept at most {MAX_AUTHORITY_KEYS}",
                code="credential.too-many",
                hint="Revoke the keys of machines that are gone: onym ai keys list --fleet URL",
            )
        first = await self._store.put_new(_FIRST, record.kid.encode(), FOREVER)
        # no copy of a set needs to be waited for if there is none, or if nobody could sign with its keys
        alone = not any(other.can_sign(at) for other in known.values())
        starts = max(record.starts, at if first or (known and alone) else at + max_age)
        announced = replace(record, created=at, starts=starts)
        await self._store.put_new(make_key(_KIND, record.kid), encode_records((announced,)), FOREVER)

    async def _revoke(self, kid: str, at: float) -> None:
        if not await self._change(kid, lambda old: replace(old, revoked=old.revoked or at)):
            raise CredentialError(
                f"the fleet has no key {kid}",
                code="credential.no-key",
                hint="List the keys with onym ai keys list --fleet URL.",
            )

    async def _change(self, kid: str, change: Callable[[KeyRecord], KeyRecord]) -> bool:
        """Change a record, even if others change it at the same time. False if it does not exist."""
        key = make_key(_KIND, kid)
        while (found := await self._store.get(key)) is not None:
            (old,) = decode_records(found.value, "the list of the fleet's keys")
            new = change(old)
            if new == old or await self._store.replace(
                key, encode_records((new,)), FOREVER, version=found.version
            ):
                return True
        return False


def _merge(announced: KeyRecord, own: KeyRecord) -> KeyRecord:
    """Return the announced record with the end that its machine has decided. A revocation is never undone."""
    revoked = announced.revoked if announced.revoked is not None else own.revoked
    return replace(announced, ends=own.ends, dropped=own.dropped, revoked=revoked)


def list_fleet_keys(url: str | Path | Secret) -> list[KeyRecord]:
    """Return the keys that the machines of a fleet have announced, oldest first. Raises StoreError."""
    keys = _KeyList(url, time.time)
    try:
        return sorted(keys.read().values(), key=lambda record: record.created)
    finally:
        keys.close()


def revoke_fleet_key(url: str | Path | Secret, kid: str) -> None:
    """Revoke the key of any machine: none accepts it after a minute. Raises StoreError, CredentialError."""
    keys = _KeyList(url, time.time)
    try:
        keys.revoke(kid, time.time())
    finally:
        keys.close()


#: the algorithms of receipts, unless a published key has another one (3.8)
ALGORITHMS: Final = USUAL_ALGORITHMS
#: seconds for which a receipt is fresh
LIFE: Final = 120
#: seconds for which `signed_metadata` is valid: twice the longest lifetime in a cache
METADATA_LIFE: Final = 48 * 3600
#: bytes of claims that fit into a receipt with any signature
_FITS: Final = 1_536
#: the answer with the largest receipt
_LARGEST: Final = Answer(content_type="x" * 255)
_MOST: Final[Mapping[str, Any]] = {"digest": receipts.content_digest(b""), "length": 2**53 - 1}
#: the longest nonce of a request
_NONCE: Final = "A" * 128
_CLAIMED: Final = re.compile(r"sha-256=:[A-Za-z0-9+/]{43}=:")


@dataclass(slots=True)
class ReceiptRequest:
    """A request with its caller, for its receipt. Until the body is read, `digest` is the head's claim.

    A request to a task has the ID of the `task`, the hash of the `original` request, and its own `target`,
    which replaces the URI in the hash of the request.
    """

    head: RequestHead
    uri: AIURI
    caller: Caller
    task: str | None = None
    original: str | None = None
    target: str | None = None
    #: the URI without its query
    subject: str = field(init=False)
    digest: str | None = field(init=False)
    #: the approval that the call has spent
    approval: receipts.ApprovalReference | None = field(default=None, init=False)
    _hash: str | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        claimed = self.head.digest
        self.subject = str(self.uri.without_query)
        self.digest = claimed if claimed is not None and _CLAIMED.fullmatch(claimed) else None

    def set_body(self, body: bytes) -> None:
        """Set the digest of the body."""
        self.digest, self._hash = receipts.content_digest(body) if body else None, None

    @property
    def request_hash(self) -> str:
        """`rqh`, the hash of the request (3.8)."""
        if self._hash is None:
            head = self.head
            self._hash = request_hash(
                method=head.method,
                target=self.target or str(self.uri),
                digest=self.digest,
                content_type=head.content_type,
                idempotency_key=head.idempotency_key,
            )
        return self._hash


@dataclass(frozen=True, slots=True)
class ReceiptSigner:
    """Signs for one anchor with its current key. `keys` is a KeyStore, FleetKeys, one Signer, or None."""

    anchor: str
    keys: KeyStore | FleetKeys | Signer | None
    clock: Callable[[], float] = field(repr=False)

    def get_signer(self) -> Signer:
        """Return the current signing key. Raises AIIPError `aiip.receipt-unavailable` without one."""
        if self.keys is None:
            raise _make_unavailable_error()
        try:
            keys: Any = self.keys
            signer: Signer = keys.signer(self.clock()) if hasattr(keys, "signer") else keys
        except (SignatureError, CredentialError) as error:
            raise _make_unavailable_error() from error
        return signer

    def require_signable(self, request: ReceiptRequest) -> None:
        """Raise AIIPError `aiip.receipt-unavailable` if no response to this request could be signed."""
        signer, caller = self.get_signer(), request.caller
        bound = caller.token_hash is not None
        try:
            if (
                request.approval is not None
                or _measure_claims(self.anchor, request.subject, caller.audience, bound) > _FITS
            ):
                # the length of the receipt depends on the signature
                receipts.sign_receipt(self._build_receipt(request, _LARGEST, **_MOST), signer)
        except (SignatureError, CredentialError) as error:
            raise _make_unavailable_error() from error

    def sign_answer(self, request: ReceiptRequest, answer: Answer, body: bytes) -> str:
        """Return the receipt of a whole answer; `body` is the part that is sent (nothing for HEAD)."""
        return self._sign_receipt(request, answer, digest=receipts.content_digest(body), length=len(body))

    def sign_stream(self, request: ReceiptRequest, answer: Answer, end: receipts.StreamEnd) -> str:
        """Return the receipt at the end of a stream."""
        return self._sign_receipt(request, answer, stream=end)

    def _sign_receipt(self, request: ReceiptRequest, answer: Answer, **content: Any) -> str:
        try:
            return receipts.sign_receipt(self._build_receipt(request, answer, **content), self.get_signer())
        except (SignatureError, CredentialError) as error:
            raise _make_unavailable_error() from error

    def _build_receipt(self, request: ReceiptRequest, answer: Answer, **content: Any) -> receipts.Receipt:
        now = int(self.clock())
        return receipts.Receipt(
            issuer=self.anchor,
            subject=request.subject,
            audience=request.caller.audience,
            issued=now,
            expires=now + LIFE,
            id=receipts.make_receipt_id(),
            nonce=request.head.nonce,
            request=request.request_hash,
            status=answer.status,
            content_type=answer.content_type,
            token_hash=request.caller.token_hash,
            task=request.task,
            original=request.original,
            approval=request.approval,
            **content,
        )

    def sign_document_members(self, members: Mapping[str, Any]) -> str:
        """Sign members of the discovery document (3.2). Raises AIIPError as `get_signer` does."""
        now = self.clock()
        try:
            return receipts.sign_metadata(
                members, self.get_signer(), issuer=self.anchor, issued=now, expires=now + METADATA_LIFE
            )
        except (SignatureError, CredentialError) as error:
            raise _make_unavailable_error() from error

    def list_algorithms(self) -> tuple[str, ...]:
        """Return the algorithms that callers must expect: the usual ones and those of the published keys."""
        if self.keys is None:
            return ALGORITHMS
        published = msgspec.json.decode(self.encode_keys("jwks"))["keys"]
        return tuple(dict.fromkeys([*ALGORITHMS, *(key["alg"] for key in published)]))

    def encode_keys(self, name: Literal["jwks", "history"]) -> bytes:
        """Return the key set to publish, or the "history" with all earlier keys, for audits."""
        keys: Any = self.keys
        if keys is None:
            raise _make_unavailable_error()
        try:
            octets: bytes = getattr(keys, name)(self.clock()) if hasattr(keys, name) else b""
        except CredentialError as error:
            raise _make_unavailable_error() from error
        return octets or msgspec.json.encode({"keys": [keys.public()]})


@lru_cache(maxsize=1024)
def _measure_claims(issuer: str, subject: str, audience: str, bound: bool) -> int:
    """Return the size of the claims in the largest receipt for these values; `bound` to a token or not.

    The size of the other claims was limited when the request was parsed. Raises SignatureError for invalid
    claims.
    """
    any_hash = "A" * 43
    trial = receipts.Receipt(
        issuer=issuer,
        subject=subject,
        audience=audience,
        issued=2**31,
        expires=2**31 + LIFE,
        id=receipts.make_receipt_id(),
        nonce=_NONCE,
        request=any_hash,
        status=_LARGEST.status,
        content_type=_LARGEST.content_type,
        token_hash=any_hash if bound else None,
        **_MOST,
    )
    claims = receipts.encode_claims(trial)
    receipts.decode_claims(claims, trial.kind)
    return len(msgspec.json.encode(claims))


def validate_answer(answer: Answer) -> None:
    """Raise OnymError `aiip.internal` for a handler's answer that cannot be signed or sent."""
    texts = all(isinstance(text, str) for field in answer.headers for text in field)
    if not 200 <= answer.status <= 599:
        fault = f"the status {answer.status}"
    elif answer.content_type is not None and not CONTENT_TYPE.fullmatch(answer.content_type):
        fault = "an invalid content type"
    elif not (texts and isinstance(answer.body, bytes)):
        fault = "a body or fields of a wrong type"
    else:
        return
    raise OnymError(f"the handler's answer has {fault}", code="aiip.internal")


def _make_unavailable_error() -> AIIPError:
    # callers must not learn anything about the keys; the log contains the reason
    return AIIPError(
        "the endpoint cannot sign receipts now", code="aiip.receipt-unavailable", clause="AIIP/HTTPS v1 3.6"
    )
