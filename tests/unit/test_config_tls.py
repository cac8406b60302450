"""The tls block, with real certificate files."""

import datetime
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from config.options import CertificatePair
from tests.unit.config_files import options, problems, write


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> CertificatePair:
    folder = tmp_path_factory.mktemp("tls")
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    start = datetime.datetime(2024, 1, 1)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), 1, start)
        .not_valid_after(start + datetime.timedelta(days=36500))
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    (folder / "cert.pem").write_bytes(certificate.public_bytes(pem))
    plain = serialization.NoEncryption()
    raw = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain)
    (folder / "key.pem").write_bytes(raw)
    return CertificatePair(str(folder / "cert.pem"), str(folder / "key.pem"))


@pytest.mark.feature("3-048", "3-050", "3-051", "3-052", "3-053", "3-054")
def test_a_whole_block(tmp_path: Path, pair: CertificatePair) -> None:
    got = options(
        tmp_path,
        f"""
        tls {{
          cert_file: '{pair.cert_file}', key_file: '{pair.key_file}', ca_file: '{pair.cert_file}'
          verify_and_map: true, timeout: 1.5, min_version: "1.3", connection_rate_limit: 9
          cipher_suites: [TLS_AES_128_GCM_SHA256], curve_preferences: [X25519, CurveP256]
          handshake_first: "300ms", pinned_certs: ["{"AB" * 32}"]
        }}
        """,
    )
    tls = got.tls
    assert tls is not None
    assert tls.certificates == (pair,)
    assert (tls.ca_file, tls.verify, tls.verify_and_map) == (pair.cert_file, True, True)
    assert (tls.timeout_ns, tls.min_version) == (1_500_000_000, "1.3")
    assert tls.connection_rate_limit == 9
    assert tls.cipher_suites == ("TLS_AES_128_GCM_SHA256",)
    assert tls.curve_preferences == ("X25519", "CurveP256")
    assert (tls.handshake_first, tls.handshake_first_fallback_ns) == (True, 300_000_000)
    assert tls.pinned_certs == {"ab" * 32}
    # Without a timeout of its own, a login has the handshake's time and a second.
    assert got.auth.timeout_ns == 2_500_000_000


@pytest.mark.feature("3-052")
@pytest.mark.parametrize(
    ("word", "first", "fallback_ns"),
    [("true", True, 0), ("'off'", False, 0), ("auto", True, 50_000_000), ("'2s'", True, 2 * 10**9)],
)
def test_handshake_first(
    tmp_path: Path, pair: CertificatePair, word: str, first: bool, fallback_ns: int
) -> None:
    files = f"cert_file: '{pair.cert_file}', key_file: '{pair.key_file}'"
    tls = options(tmp_path, f"tls {{ {files}, first: {word} }}").tls
    assert tls is not None
    assert (tls.handshake_first, tls.handshake_first_fallback_ns) == (first, fallback_ns)


@pytest.mark.feature("3-049")
def test_several_certificates(tmp_path: Path, pair: CertificatePair) -> None:
    entry = f"{{ cert_file: '{pair.cert_file}', key_file: '{pair.key_file}' }}"
    tls = options(tmp_path, f"tls {{ certs: [ {entry}, {entry} ] }}").tls
    assert tls is not None
    assert tls.certificates == (pair, pair)


def test_files_that_are_no_certificates(tmp_path: Path, pair: CertificatePair) -> None:
    junk = write(tmp_path, "junk", "junk.pem")
    text = problems(tmp_path, f"tls {{ cert_file: '{junk}', key_file: '{pair.key_file}' }}")
    assert "are no certificate and its key" in text
    assert "holds no certificate" in problems(tmp_path, f"tls {{ ca_file: '{junk}' }}")
    assert "cannot read /none" in problems(tmp_path, "tls {cert_file: /none, key_file: /none}")


@pytest.mark.feature("2-020")
def test_a_block_without_a_certificate_is_refused_at_the_start(tmp_path: Path) -> None:
    assert "tls needs a certificate" in problems(tmp_path, "tls { verify: true }")
    assert "https needs a tls block" in problems(tmp_path, "https_port: 1")
