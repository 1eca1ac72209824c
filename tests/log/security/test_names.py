"""A certificate's subject and Kafka's mapping rules give the names that Apache Kafka gives."""

from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from semel.log.security.names import NoName, RulesRefused, rules_of, subject_of
from semel.testing.certificates import Authority

# From Kafka's SslPrincipalMapperTest.
KAFKA = [
    (
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L, RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L, "
        "RULE:^cn=(.*?),ou=(.*?),dc=(.*?),dc=(.*?)$/$1@$2/U, RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U, DEFAULT",
        {
            "CN=Duke,OU=ServiceUsers,O=Org,C=US": "duke",
            "CN=Duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US": "duke@sme",
            "cn=duke,ou=sme,dc=mycp,dc=com": "DUKE@SME",
            "cN=duke,OU=JavaSoft,O=Sun Microsystems": "DUKE",
            "OU=JavaSoft,O=Sun Microsystems,C=US": "OU=JavaSoft,O=Sun Microsystems,C=US",
        },
    ),
    ("", {"CN=Duke": "CN=Duke"}),
    ("DEFAULT", {"CN=Duke": "CN=Duke"}),
    (r"RULE:^CN=([^,ADEFLTU,]+)(,.*$|$)/$1/", {"CN=user,OU=x": "user"}),
    (r"RULE:^CN=(\w+)$/\$1-$1-$2/", {"CN=a": "$1-a-$2"}),
]
# What Java's `replaceAll` makes of a pattern that also matches less than the whole subject, and of `$12`.
JAVA = [
    ("RULE:CN=(.*?)(,OU=.*?)?/$1/", {"CN=a,OU=b": "a,OU=b"}),
    ("RULE:(.*)/$1-x/", {"CN=a": "CN=a-x-x"}),
    ("RULE:^(.*)$/$1-x/", {"CN=a": "CN=a-x"}),
    (r"RULE:CN=(\w+)/$12$21/", {"CN=a": "a2$21"}),
]


@pytest.mark.parametrize(("rules", "names"), KAFKA + JAVA)
def test_rules_make_the_names_of_kafka(rules: str, names: dict[str, str]) -> None:
    name_of = rules_of(rules)
    assert {subject: name_of(subject) for subject in names} == names


def test_a_rule_matches_the_whole_subject_or_not_at_all() -> None:
    with pytest.raises(NoName, match="CN=admin2"):
        rules_of("RULE:CN=admin/admin/")("CN=admin2")


@pytest.mark.parametrize(
    "rules", ["default", "DEFAUL", "RULE:", "RULE:/", "RULE:a/b", "DEFAULT/L", "RULE:(/b/", "RULE:a/b/LU", ",DEFAULT"]
)
def test_what_is_no_rule_is_refused(rules: str) -> None:
    with pytest.raises(RulesRefused):
        rules_of(rules)


def subject(path: Path, *attributes: tuple[x509.ObjectIdentifier, str]) -> str:
    whole = x509.Name([x509.NameAttribute(kind, value) for kind, value in attributes])
    files = Authority(path).issue("one", subject=whole)
    pem = x509.load_pem_x509_certificate(Path(files.certificate).read_bytes())
    from cryptography.hazmat.primitives.serialization import Encoding

    return subject_of(pem.public_bytes(Encoding.DER))


def test_a_subject_is_written_as_java_writes_it(tmp_path: Path) -> None:
    assert (
        subject(
            tmp_path,
            (NameOID.COUNTRY_NAME, "DE"),
            (NameOID.DOMAIN_COMPONENT, "example"),
            (NameOID.ORGANIZATION_NAME, 'Smith, "Sons" & <Co>'),
            (NameOID.USER_ID, "u1"),
            (NameOID.EMAIL_ADDRESS, "a@b"),
            (NameOID.COMMON_NAME, " \N{SNOWMAN}# "),
        )
        == 'CN=\\ \N{SNOWMAN}\\#\\ ,1.2.840.113549.1.9.1=#1603614062,UID=u1,O=Smith\\, \\"Sons\\" & \\<Co\\>,'
        "DC=example,C=DE"
    )


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("a=b", r"a\=b"),
        ("#1", r"\#1"),
        ("team #1", r"team \#1"),
        ("  two  ", r"\ \ two\ \ "),
        ("   ", r"\ \ \ "),
        ("back\\ ", r"back\\\ "),
        ("a\0b", r"a\00b"),
        ("\rline\r", "\\\rline\\\r"),
        ("in ner", "in ner"),
    ],
)
def test_what_java_escapes_is_escaped(value: str, shown: str, tmp_path: Path) -> None:
    """As `AVA.toRFC2253String` does."""
    assert subject(tmp_path, (NameOID.COMMON_NAME, value)) == f"CN={shown}"


def test_a_part_of_a_certificates_name_does_not_pass_for_another_one(tmp_path: Path) -> None:
    """Who may choose a CN cannot choose an OU by that."""
    name_of = rules_of("RULE:^.*OU=([A-Za-z]+).*$/$1/, DEFAULT")
    assert name_of(subject(tmp_path, (NameOID.COMMON_NAME, "x,OU=Admins"))) == r"CN=x\,OU\=Admins"


@given(st.binary(max_size=300))
def test_any_bytes_are_a_subject_or_a_value_error(data: bytes) -> None:
    try:
        subject_of(data)
    except ValueError:
        return
