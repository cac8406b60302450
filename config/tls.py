"""The tls block, and the files it names."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from config import rooms
from config.decode import (
    BOOLEAN,
    SECONDS,
    TEXT,
    Decoder,
    Draft,
    InvalidError,
    Report,
    block,
    decode_block,
    integer,
    one_of,
    option,
)
from config.duration import DurationError, parse_duration
from config.limits import TLS_FALLBACK_DELAY_NS
from config.options import CertificatePair, TlsOptions
from config.parser import Node

SECURE_CIPHERS: Final = (
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
)
INSECURE_CIPHERS: Final = (
    "TLS_RSA_WITH_RC4_128_SHA",
    "TLS_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA",
    "TLS_RSA_WITH_AES_256_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA",
    "TLS_ECDHE_RSA_WITH_RC4_128_SHA",
    "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",
)
CURVES: Final = ("X25519MLKEM768", "X25519", "CurveP256", "CurveP384", "CurveP521")
_PIN_DIGITS: Final = 64


def _names(known: tuple[str, ...], what: str) -> Decoder:
    def read(node: Node, _: Report) -> tuple[str, ...]:
        if not isinstance(node.value, list) or not node.value:
            raise InvalidError
        for entry in node.value:
            if entry.value not in known:
                raise InvalidError(f"unrecognized {what} {entry.value}", entry)
        return tuple(str(entry.value) for entry in node.value)

    return Decoder(f"a non-empty array of {what}s", read)


def _pinned(node: Node, _: Report) -> frozenset[str]:
    if not isinstance(node.value, list):
        raise InvalidError
    pins = set()
    for entry in node.value:
        pin = str(entry.value).lower()
        if len(pin) != _PIN_DIGITS or not set(pin) <= set("0123456789abcdef"):
            raise InvalidError(
                "expected a pin of 64 hexadecimal digits: the SHA-256 of a key", entry
            )
        pins.add(pin)
    return frozenset(pins)


def _handshake_first(node: Node, _: Report) -> Draft:
    """True, or wait that long for a hello and then go the usual way."""
    if isinstance(node.value, bool):
        return {"handshake_first": node.value}
    if type(node.value) is not str:
        raise InvalidError
    word = node.value.lower()
    if word in ("true", "on", "false", "off"):
        return {"handshake_first": word in ("true", "on")}
    delay_ns = TLS_FALLBACK_DELAY_NS
    if word not in ("auto", "auto_fallback"):
        try:
            delay_ns = parse_duration(node.value)
        except DurationError:
            raise InvalidError from None
    return {"handshake_first": True, "handshake_first_fallback_ns": max(delay_ns, 0)}


def _pairs(node: Node, report: Report) -> tuple[CertificatePair, ...]:
    if not isinstance(node.value, list):
        raise InvalidError
    pairs = []
    for entry in node.value:
        if not isinstance(entry.value, dict):
            raise InvalidError(
                f"expected a map of cert_file and key_file, got {entry.type_name}", entry
            )
        draft = decode_block(entry.value, _PAIR, report)
        if not draft.get("cert_file") or not draft.get("key_file"):
            raise InvalidError("both cert_file and key_file are required", entry)
        pairs.append(CertificatePair(draft["cert_file"], draft["key_file"]))
    return tuple(pairs)


def _never_here(node: Node, _: Report) -> Draft:
    if node.value is True:
        raise InvalidError("verify_cert_and_check_known_urls is not possible for clients")
    if not isinstance(node.value, bool):
        raise InvalidError
    return {}


def _windows_only(_: Node, __: Report) -> Draft:
    raise InvalidError("certificate stores exist only on Windows: use cert_file and key_file")


_WINDOWS: Final = Decoder("a certificate store", _windows_only)
_PAIR: Final = block(
    option("cert_file", to="cert_file", by=TEXT), option("key_file", to="key_file", by=TEXT)
)
TLS_BLOCK: Final = block(
    option("cert_file", to="cert_file", by=TEXT),
    option("key_file", to="key_file", by=TEXT),
    option("certs", "certificates", to="certificates", by=Decoder("an array of pairs", _pairs)),
    option("ca_file", to="ca_file", by=TEXT),
    option("verify", to="verify", by=BOOLEAN),
    option("verify_and_map", to="verify_and_map", by=BOOLEAN),
    option("insecure", to="insecure", by=BOOLEAN),
    option("timeout", to="timeout_ns", by=SECONDS),
    option("min_version", to="min_version", by=one_of("1.2", "1.3")),
    option(
        "cipher_suites",
        to="cipher_suites",
        by=_names(SECURE_CIPHERS + INSECURE_CIPHERS, "cipher"),
    ),
    option("allow_insecure_cipher_suites", to="allow_insecure_cipher_suites", by=BOOLEAN),
    option("curve_preferences", to="curve_preferences", by=_names(CURVES, "curve preference")),
    option(
        "handshake_first",
        "first",
        "immediate",
        to="",
        by=Decoder('a boolean, "auto" or a duration', _handshake_first),
    ),
    option("pinned_certs", to="pinned_certs", by=Decoder("an array of pins", _pinned)),
    option("connection_rate_limit", to="connection_rate_limit", by=integer(floor=0)),
    option(
        "verify_cert_and_check_known_urls",
        to="",
        by=Decoder("a boolean (true or false)", _never_here),
    ),
    option("ocsp_peer", to="", by=rooms.later("ocsp_peer", rooms.OCSP_PEER)),
    option("cert_store", to="", by=_WINDOWS),
    option("cert_match_by", to="", by=_WINDOWS),
    option("cert_match", to="", by=_WINDOWS),
    option("ca_certs_match", to="", by=_WINDOWS),
    option("cert_match_skip_invalid", to="", by=_WINDOWS),
)


def _tls(node: Node, report: Report) -> TlsOptions:
    if not isinstance(node.value, dict):
        raise InvalidError
    before = len(report.problems)
    draft = decode_block(node.value, TLS_BLOCK, report)
    cert_file, key_file = draft.pop("cert_file", ""), draft.pop("key_file", "")
    tls = TlsOptions(**{**draft, "verify": draft.get("verify", False) or mapped(draft)})
    if len(report.problems) > before:
        return tls
    return checked(with_pair(tls, cert_file, key_file))


def mapped(draft: Draft) -> bool:
    return bool(draft.get("verify_and_map", False))


def with_pair(tls: TlsOptions, cert_file: str, key_file: str) -> TlsOptions:
    """Add the certificate of cert_file and key_file."""
    if cert_file and tls.certificates:
        raise InvalidError("cert_file and certs cannot be combined")
    if cert_file and not key_file:
        raise InvalidError("missing key_file beside cert_file")
    if key_file and not cert_file:
        raise InvalidError("missing cert_file beside key_file")
    if not cert_file:
        return tls
    return replace(tls, certificates=(CertificatePair(cert_file, key_file),))


def checked(tls: TlsOptions) -> TlsOptions:
    """The same options, if the ciphers are allowed and the files can be loaded."""
    insecure = [name for name in tls.cipher_suites if name in INSECURE_CIPHERS]
    if insecure and not tls.allow_insecure_cipher_suites:
        raise InvalidError(
            f"insecure ciphers need allow_insecure_cipher_suites: {', '.join(insecure)}"
        )
    if tls.certificates or tls.ca_file:
        _load_files(tls)
    return tls


def _load_files(tls: TlsOptions) -> None:
    import ssl

    for pair in tls.certificates:
        _readable(pair.cert_file)
        _readable(pair.key_file)
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(
                pair.cert_file, pair.key_file, password=""
            )
        except (ssl.SSLError, OSError) as error:
            files = f"{pair.cert_file} and {pair.key_file}"
            raise InvalidError(f"{files} are no certificate and its key: {error}") from None
    if tls.ca_file:
        _readable(tls.ca_file)
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(tls.ca_file)
        except (ssl.SSLError, OSError):
            raise InvalidError(f"{tls.ca_file} holds no certificate in PEM form") from None


def _readable(path: str) -> None:
    try:
        with open(path, "rb"):
            pass
    except OSError as error:
        raise InvalidError(f"cannot read {path}: {error.strerror}") from None


TLS: Final = Decoder("a map", _tls)
