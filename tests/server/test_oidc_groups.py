"""Roles from the groups of an OpenID provider: they come with the group and go with it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from onym.accounts.records import Account, GroupRoles
from onym.cli._app import app
from onym.errors import ConfigError
from onym.registry.records import Role, get_registry_roles, is_administrator
from onym.registry.store import Store
from onym.server.app import create_app
from onym.server.settings import Issuer, IssuerTable, load_settings, require_consistent_issuers
from openid_support import OpenIDProvider, openid_provider
from registry_support import arun
from server.test_oidc import begin, come_back, issuer_of, site_with, who
from server_support import World, settings, world

REVIEWERS = GroupRoles(group="naming-reviewers", roles=("expert",), realm="uri-schemes")
OFFICE = GroupRoles(group="naming office", roles=("iana", "expert"))


@dataclass
class Directory:
    """A provider, and the file with the groups of its people."""

    provider: OpenIDProvider
    path: Path

    def put(self, login: str, groups: object) -> None:
        self.path.write_text(json.dumps({login: groups}), encoding="utf-8")


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Directory]:
    path = tmp_path_factory.mktemp("groups") / "groups.json"
    path.write_text("{}", encoding="utf-8")
    with openid_provider(groups_file=path) as provider:
        yield Directory(provider, path)


@contextmanager
def _open_site(folder: Path, directory: Directory, *rows: GroupRoles, **changes: Any) -> Iterator[World]:
    with site_with(folder, issuer_of(directory.provider, groups=rows, **changes)) as site:
        yield site


def _sign_in(site: World, directory: Directory, groups: object) -> Account:
    directory.put("ann", groups)
    site.client.cookies.clear()
    answer = come_back(site, directory.provider.sign_in(begin(site, "real"), "ann"))
    assert answer.status_code == 303, answer.text
    account = site.do(site.store.accounts.get, who(site))
    assert isinstance(account, Account)
    return account


@pytest.mark.xdist_group("real-servers")
def test_a_role_comes_with_the_group_and_goes_with_it(tmp_path: Path, directory: Directory) -> None:
    with _open_site(tmp_path, directory, REVIEWERS, OFFICE) as site:
        account = _sign_in(site, directory, ["staff", "naming-reviewers"])
        assert get_registry_roles(account, "uri-schemes") == {Role.EXPERT}
        assert get_registry_roles(account, "llm-parameters") == frozenset()
        account = _sign_in(site, directory, ["naming office"])
        assert is_administrator(account)
        assert get_registry_roles(account, "llm-parameters") == {Role.IANA, Role.EXPERT}
        account = _sign_in(site, directory, ["staff"])
        assert get_registry_roles(account, "uri-schemes") == frozenset()
        assert account.roles == {}


@pytest.mark.xdist_group("real-servers")
@pytest.mark.parametrize("groups", [None, [], 7, {"naming-reviewers": True}, [["naming-reviewers"]]])
def test_a_provider_that_names_no_groups_takes_the_roles(
    tmp_path: Path, directory: Directory, groups: object
) -> None:
    with _open_site(tmp_path, directory, REVIEWERS) as site:
        assert _sign_in(site, directory, "naming-reviewers").roles
        assert _sign_in(site, directory, groups).roles == {}


@pytest.mark.xdist_group("real-servers")
def test_a_role_that_an_administrator_gave_stays(tmp_path: Path, directory: Directory) -> None:
    with _open_site(tmp_path, directory, REVIEWERS) as site:
        account = _sign_in(site, directory, ["naming-reviewers"])
        site.do(site.store.accounts.set_roles, account.id, "uri-schemes", {Role.IESG})
        account = _sign_in(site, directory, ["naming-reviewers"])
        assert get_registry_roles(account, "uri-schemes") == {Role.IESG, Role.EXPERT}
        account = _sign_in(site, directory, [])
        assert get_registry_roles(account, "uri-schemes") == {Role.IESG}


@pytest.mark.xdist_group("real-servers")
def test_a_change_of_roles_is_in_the_audit_log_once(tmp_path: Path, directory: Directory) -> None:
    with _open_site(tmp_path, directory, REVIEWERS) as site:
        for groups in (["naming-reviewers"], ["naming-reviewers"], []):
            account = _sign_in(site, directory, groups)
        found = [record for record in site.audit() if record.action == "account.group-roles"]
        assert [(record.account, record.subject) for record in found] == [
            (account.id, "expert in uri-schemes@real"),
            (account.id, "none"),
        ]


@pytest.mark.xdist_group("real-servers")
def test_another_claim_can_hold_the_groups(tmp_path: Path, directory: Directory) -> None:
    row = GroupRoles(group="ann", roles=("iesg",))
    with _open_site(tmp_path, directory, row, groups_claim="preferred_username") as site:
        assert get_registry_roles(_sign_in(site, directory, []), "ai-namespaces") == {Role.IESG}


def test_a_mapping_that_is_gone_takes_its_roles_when_the_service_starts(tmp_path: Path) -> None:
    given = {"uri-schemes@company": frozenset({"expert"}), "*@company": frozenset({"iana"})}
    issuer = Issuer(id="company", issuer="https://login.example", client_id="x", groups=(REVIEWERS,))

    async def restart() -> Mapping[str, frozenset[str]]:
        async with await Store.open(tmp_path / "registry.db") as store:
            app_ = create_app(settings(oidc=(issuer,)), store)
            async with app_.router.lifespan_context(app_):
                account = await store.accounts.get("user-alice")
                assert account is not None
                return account.roles

    with world(tmp_path) as site:
        site.do(site.store.accounts.replace_group_roles, "user-alice", "company", given)
    assert arun(restart()) == {"uri-schemes": {"expert"}, "uri-schemes@company": {"expert"}}


def test_roles_are_dropped_that_nothing_grants(tmp_path: Path) -> None:
    with world(tmp_path) as site:
        accounts = site.store.accounts
        given = {"uri-schemes@old": frozenset({"expert", "iana"}), "*@old": frozenset({"iesg"})}
        site.do(accounts.replace_group_roles, "user-alice", "old", given)
        assert site.do(accounts.drop_group_roles, {("uri-schemes@old", "expert")}) == 2
        kept = site.do(accounts.get, "user-alice").roles
        assert kept == {"uri-schemes": {"expert"}, "uri-schemes@old": {"expert"}}


def test_people_with_a_role_by_group_get_its_notices(tmp_path: Path) -> None:
    with world(tmp_path) as site:
        given = {"llm-parameters@old": frozenset({"expert"})}
        site.do(site.store.accounts.replace_group_roles, "user-alice", "old", given)
        found = site.do(site.store.accounts.list, realm="llm-parameters", role="expert")
        assert [account.login for account in found] == ["alice"]
        assert site.do(site.store.accounts.list, realm="ai-namespaces", role="expert") == ()


SETTINGS = """\
base_url = "https://names.example"
[[oidc]]
id = "company"
issuer = "https://login.example"
client_id = "names"
[[oidc.groups]]
group = "naming-reviewers"
roles = [{roles}]
realm = "{realm}"
"""


def _load(folder: Path, roles: str = '"reviewer"', realm: str = "services") -> Any:
    path = folder / "registry.toml"
    path.write_text(SETTINGS.format(roles=roles, realm=realm), encoding="utf-8")
    return load_settings(path, environ={})


def test_the_settings_name_roles_in_either_vocabulary(tmp_path: Path) -> None:
    (issuer,) = _load(tmp_path, '"reviewer", "iana"').oidc
    assert [(row.group, row.realm, row.roles) for row in issuer.groups] == [
        ("naming-reviewers", "services", ("expert", "iana"))
    ]


@pytest.mark.parametrize(
    ("roles", "realm"), [("", "services"), ('"king"', "services"), ('"reader"', "*"), ('"expert"', "a@b")]
)
def test_a_mapping_to_what_does_not_exist_is_refused(tmp_path: Path, roles: str, realm: str) -> None:
    with pytest.raises(ConfigError) as caught:
        _load(tmp_path, roles, realm)
    assert caught.value.code == "config.bad-setting"
    assert "groups[0]" in caught.value.message


def test_a_service_without_roles_cannot_give_them() -> None:
    issuer = IssuerTable(id="a", issuer="https://login.example", client_id="x", groups=(REVIEWERS,))
    with pytest.raises(ConfigError) as caught:
        require_consistent_issuers([issuer], "providers")
    assert "providers[0].groups[0].roles" in caught.value.message


def test_the_command_line_says_that_a_group_gave_a_role(tmp_path: Path) -> None:
    with world(tmp_path) as site:
        given = {"uri-schemes@company": frozenset({"iana"})}
        site.do(site.store.accounts.replace_group_roles, "user-alice", "company", given)
    db = str(tmp_path / "registry.db")
    run = CliRunner()
    listed = run.invoke(app, ["registry", "user", "list", "--db", db])
    assert "iana in uri-schemes (by a group of company)" in listed.output
    refused = run.invoke(app, ["registry", "user", "roles", "alice", "--remove", "iana", "--db", db])
    assert refused.exit_code != 0
    assert "remove the account from the group" in refused.output
