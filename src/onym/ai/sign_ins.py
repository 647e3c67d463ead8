"""Sign-ins of a person, and where they are kept for later processes: the keyring, or a private folder."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from onym.ai.oauth import Grant, Target
from onym.ai.oauth_metadata import Registration
from onym.ai.records import Level
from onym.common.files import make_private_folder, read_private_file, remove_private_file, write_private_file
from onym.common.text import parse_json_object
from onym.errors import CredentialError, SignatureError
from onym.sign.dpop import DPoPKey
from onym.uri.secret import Secret

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class SignIn:
    """A person's sign-in at an authorization server, for one authority or gateway (`name`).

    Times are seconds since the epoch. It contains secrets: `export` returns them for storage.
    """

    name: str
    registration: Registration = field(repr=False)
    resource: str
    scopes: tuple[str, ...]
    token: Secret
    expires: float
    signed_in: float
    refresh_token: Secret | None = None
    dpop_key: DPoPKey | None = None
    dpop: Level = Level.NONE

    @classmethod
    def from_grant(
        cls, name: str, grant: Grant, *, registration: Registration, target: Target, at: float
    ) -> SignIn:
        """Return the sign-in that a grant begins."""
        return cls(
            name=name,
            registration=registration,
            resource=target.resource or "",
            scopes=tuple(sorted(grant.scopes)),
            token=grant.token,
            expires=grant.expires,
            signed_in=at,
            refresh_token=grant.refresh_token,
            dpop_key=grant.dpop_key,
            dpop=target.dpop,
        )

    def export(self) -> Secret:
        """Return the sign-in as JSON, with its secrets; keys and certificates of the client stay out."""
        row = self.registration
        members: dict[str, Any] = {
            "version": 1,
            "name": self.name,
            "issuer": row.issuer,
            "client_id": row.client_id,
            "client_secret": None if row.secret is None else row.secret.reveal(),
            "origins": list(row.origins),
            "resource": self.resource,
            "scopes": list(self.scopes),
            "token": self.token.reveal(),
            "expires": self.expires,
            "signed_in": self.signed_in,
            "refresh_token": None if self.refresh_token is None else self.refresh_token.reveal(),
            "dpop_key": None if self.dpop_key is None else self.dpop_key.export_key().reveal(),
            "dpop": str(self.dpop),
        }
        return Secret(json.dumps(members))

    @classmethod
    def from_text(cls, text: Secret) -> SignIn:
        """Return an exported sign-in. Raises CredentialError `credential.unreadable`."""
        try:
            return cls._parse(text)
        except (ValueError, KeyError, TypeError, AttributeError, SignatureError):
            pass  # outside of this clause, so that the error has no context with secrets
        raise CredentialError(
            "the stored sign-in cannot be read",
            code="credential.unreadable",
            hint="Sign in again: onym ai login.",
        )

    @classmethod
    def _parse(cls, text: Secret) -> SignIn:
        members = parse_json_object(text.reveal().encode())
        secrets = {
            name: None if members[name] is None else Secret(members[name])
            for name in ("client_secret", "token", "refresh_token", "dpop_key")
        }
        key = secrets["dpop_key"]
        return cls(
            name=members["name"],
            registration=Registration(
                issuer=members["issuer"],
                client_id=members["client_id"],
                secret=secrets["client_secret"],
                origins=tuple(members["origins"]),
            ),
            resource=members["resource"],
            scopes=tuple(members["scopes"]),
            token=secrets["token"] or Secret(""),
            expires=float(members["expires"]),
            signed_in=float(members["signed_in"]),
            refresh_token=secrets["refresh_token"],
            dpop_key=None if key is None else DPoPKey.from_jwk(key),
            dpop=Level(members["dpop"]),
        )


class SignIns(Protocol):
    """Keeps sign-ins by name: the authority, or the origin of a gateway. Its methods may wait."""

    def load(self, name: str) -> SignIn | None:
        """Return the sign-in, or None. Raises CredentialError."""
        ...

    def save(self, sign_in: SignIn) -> None:
        """Keep a sign-in, instead of an older one of its name. Raises CredentialError."""
        ...

    def delete(self, name: str) -> bool:
        """Forget a sign-in, and report whether there was one. Raises CredentialError."""
        ...

    def list_names(self) -> list[str]:
        """Return the names, sorted. Raises CredentialError."""
        ...


_SERVICE: Final = "onym-ai"
#: the entry of the keyring that lists the names of the others; no authority has such a name
_INDEX: Final = " names"
#: sign-ins of one person
MAX_SIGN_INS: Final = 1000
_MAX_FILE: Final = 128 * 1024


class KeyringSignIns:
    """Sign-ins in the keyring of the system, as `onym ai login` keeps them."""

    def load(self, name: str) -> SignIn | None:
        """Return the sign-in, or None."""
        text = _use_keyring(lambda ring: ring.get_password(_SERVICE, name), absent=True)
        return None if text is None else SignIn.from_text(Secret(text))

    def save(self, sign_in: SignIn) -> None:
        """Keep a sign-in."""
        text = sign_in.export()
        _use_keyring(lambda ring: ring.set_password(_SERVICE, sign_in.name, text.reveal()))
        self._write_names({*self.list_names(), sign_in.name})

    def delete(self, name: str) -> bool:
        """Forget a sign-in."""
        names = self.list_names()
        found = _use_keyring(lambda ring: ring.get_password(_SERVICE, name), absent=True) is not None
        if found:
            _use_keyring(lambda ring: ring.delete_password(_SERVICE, name))
        if name in names:
            self._write_names({*names} - {name})
        return found

    def list_names(self) -> list[str]:
        """Return the names, sorted."""
        text = _use_keyring(lambda ring: ring.get_password(_SERVICE, _INDEX), absent=True)
        try:
            names = json.loads(text or "[]")
        except ValueError:
            names = []
        return sorted(name for name in names if isinstance(name, str)) if isinstance(names, list) else []

    def _write_names(self, names: Collection[str]) -> None:
        text = json.dumps(sorted(names)[:MAX_SIGN_INS])
        _use_keyring(lambda ring: ring.set_password(_SERVICE, _INDEX, text))


def _use_keyring(call: Callable[[Any], T], *, absent: bool = False) -> T | None:
    """Run a call to the keyring. Raises CredentialError: every backend has other errors.

    With `absent`, a computer without any keyring is one whose keyring is empty.
    """
    import keyring  # late: it looks for backends

    try:
        return call(keyring)
    except Exception as error:  # noqa: BLE001 - see above
        if absent and isinstance(error, keyring.errors.NoKeyringError):
            return None
        kind = type(error).__name__
    raise CredentialError(
        f"the keyring does not answer ({kind})",
        code="credential.keyring",
        hint="Without a keyring, keep sign-ins in a private folder: set ONYM_SIGN_INS=DIR.",
    )


class FolderSignIns:
    """Sign-ins as files in a folder that only its owner can read, for computers without a keyring."""

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)

    def load(self, name: str) -> SignIn | None:
        """Return the sign-in, or None."""
        file = self._get_file(name)
        if not file.exists():
            return None
        return SignIn.from_text(Secret(read_private_file(file, _MAX_FILE).decode("utf-8", "replace")))

    def save(self, sign_in: SignIn) -> None:
        """Keep a sign-in."""
        make_private_folder(self._folder)
        write_private_file(self._get_file(sign_in.name), sign_in.export().reveal().encode())

    def delete(self, name: str) -> bool:
        """Forget a sign-in."""
        file = self._get_file(name)
        found = file.exists()
        if found:
            remove_private_file(file)
        return found

    def list_names(self) -> list[str]:
        """Return the names, sorted."""
        files = sorted(self._folder.glob("*.json"))[:MAX_SIGN_INS] if self._folder.is_dir() else []
        texts = [Secret(read_private_file(file, _MAX_FILE).decode("utf-8", "replace")) for file in files]
        return sorted(SignIn.from_text(text).name for text in texts)

    def _get_file(self, name: str) -> Path:
        # the hash tells names apart that a file system does not
        plain = re.sub(r"[^A-Za-z0-9.-]", "_", name)[:80]
        return self._folder / f"{plain}-{hashlib.sha256(name.encode()).hexdigest()[:16]}.json"


def open_sign_ins(environ: Mapping[str, str]) -> SignIns:
    """Return the sign-ins in the folder of `ONYM_SIGN_INS`, else those in the keyring."""
    folder = environ.get("ONYM_SIGN_INS")
    return FolderSignIns(folder) if folder else KeyringSignIns()
