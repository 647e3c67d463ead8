from onym.registry.checks import check
from onym.registry.documents import read_document

TEMPLATE = """\
Scheme name: kite
Status: Provisional
Applications/protocols that use this scheme name: kite flying
Contact: Ada Example
Change controller: Ada Example <ada@example.com>
References: [KITE] Kites, https://kite.example/spec
"""

report = check(read_document(TEMPLATE))
print(report.ok)
for found in report.findings:
    if found.level == "error":
        print(f"line {found.line}: {found.message} [{found.clause}]")
        print(found.fix)
