"""From a `tls` block to contexts of OpenSSL: certificates, who is trusted, which suites."""

from __future__ import annotations

import _ssl
import ssl
from typing import Any, Final

from config.options import Options, TlsOptions

# TLS 1.3 suites cannot be chosen one by one (neither there nor here): their names change nothing.
TLS13_SUITES: Final = frozenset(
    ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256")
)
OPENSSL_SUITES: Final = {
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256": "ECDHE-RSA-AES128-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256": "ECDHE-ECDSA-AES128-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": "ECDHE-ECDSA-AES256-SHA",
    "TLS_RSA_WITH_AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    "TLS_RSA_WITH_AES_256_GCM_SHA384": "AES256-GCM-SHA384",
    "TLS_RSA_WITH_AES_128_CBC_SHA256": "AES128-SHA256",
    "TLS_RSA_WITH_AES_128_CBC_SHA": "AES128-SHA",
    "TLS_RSA_WITH_AES_256_CBC_SHA": "AES256-SHA",
}
GO_SUITES: Final = {openssl: go for go, openssl in OPENSSL_SUITES.items() if openssl not in go}
OPENSSL_CURVES: Final = {
    "X25519": "X25519",
    "CURVEP256": "prime256v1",
    "CURVEP384": "secp384r1",
    "CURVEP521": "secp521r1",
}
VERSIONS: Final = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}


class TlsError(Exception):
    """A `tls` block that cannot be carried out; the text says what to change."""


class Handshake(ssl.SSLObject):
    """Keeps what a failed handshake has to say: the loop closes without sending it.

    The error has it as `alert`, and the carrier sends it.
    """

    _outgoing: ssl.MemoryBIO
    _sslobj: Any

    @classmethod
    def _create(cls, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, **more: Any) -> Handshake:
        made: Handshake = super()._create(incoming, outgoing, **more)  # type: ignore[misc]
        made._outgoing = outgoing
        return made

    def chain_behind(self, peer: bytes) -> tuple[bytes, ...]:
        """What the peer sent behind its own certificate, in DER."""
        sent = self._sslobj.get_unverified_chain() or ()
        ders = (certificate.public_bytes(_ssl.ENCODING_DER) for certificate in sent)
        return tuple(der for der in ders if der != peer)

    def do_handshake(self) -> None:
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError as error:
            error.alert = self._outgoing.read()  # type: ignore[attr-defined]
            raise


def server_context(tls: TlsOptions, demand_certificate: bool = True) -> ssl.SSLContext:
    """The context of a listener. With several certificates the client's server name chooses."""
    contexts = [new_context(tls, index) for index in range(len(tls.certificates))]
    if not contexts:
        raise TlsError("missing 'cert_file' and 'key_file' in the tls block")
    if demand_certificate and (tls.verify or tls.verify_and_map):
        # A connection that changes to another context is judged by what that one trusts.
        for context in contexts:
            trust(context, tls.ca_file)
    if len(contexts) > 1:
        choose_by_name(contexts[0], tls, contexts)
    return contexts[0]


def monitoring_context(options: Options) -> ssl.SSLContext | None:
    """The context of the monitoring listener, which demands no certificate; None: it is plain."""
    if not options.http.tls_port:
        return None
    if options.tls is None:
        raise TlsError("TLS cert and key required for HTTPS")
    return server_context(options.tls, demand_certificate=False)


def new_context(tls: TlsOptions, index: int) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.sslobject_class = Handshake
    context.minimum_version = VERSIONS[tls.min_version]
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    if tls.cipher_suites:
        context.set_ciphers(openssl_ciphers(tls.cipher_suites))
    if tls.curve_preferences:
        context.set_ecdh_curve(openssl_curve(tls.curve_preferences))
    pair = tls.certificates[index]
    try:
        context.load_cert_chain(pair.cert_file, pair.key_file)
    except OSError as error:
        raise TlsError(
            f"error parsing X509 certificate/key pair {pair.cert_file}/{pair.key_file}: "
            f"{error.strerror or error}"
        ) from error
    return context


def trust(context: ssl.SSLContext, ca_file: str) -> None:
    """Demands a client certificate signed by one of `ca_file`, or by the system's authorities."""
    context.verify_mode = ssl.CERT_REQUIRED
    if not ca_file:
        context.load_default_certs(ssl.Purpose.CLIENT_AUTH)
        return
    try:
        context.load_verify_locations(ca_file)
    except OSError as error:
        raise TlsError(
            f"failed to parse root ca certificate {ca_file}: {error.strerror or error}"
        ) from error


def openssl_ciphers(suites: tuple[str, ...]) -> str:
    unknown = [name for name in suites if name not in OPENSSL_SUITES and name not in TLS13_SUITES]
    if unknown:
        raise TlsError(f"unrecognized cipher suite {unknown[0]}")
    chosen = [OPENSSL_SUITES[name] for name in suites if name in OPENSSL_SUITES]
    # Only TLS 1.3 names: TLS 1.2 clients find nothing in common, as with the reference.
    return ":".join(chosen) if chosen else "ECDHE+AESGCM"


def openssl_curve(preferences: tuple[str, ...]) -> str:
    if len(preferences) > 1:
        raise TlsError("curve_preferences: only one curve can be chosen here; name one, or none")
    curve = OPENSSL_CURVES.get(preferences[0].upper())
    if curve is None:
        raise TlsError(f"curve_preferences: {preferences[0]} is not supported by this OpenSSL")
    return curve


def choose_by_name(
    context: ssl.SSLContext, tls: TlsOptions, contexts: list[ssl.SSLContext]
) -> None:
    """The first certificate that is made for the name the client asks for, else the first."""
    names = [certificate_names(pair.cert_file) for pair in tls.certificates]

    def choose(connection: ssl.SSLObject, asked: str | None, _: ssl.SSLContext) -> None:
        for candidate, known in zip(contexts, names, strict=True):
            if asked and name_matches(asked.lower(), known):
                connection.context = candidate
                return

    context.sni_callback = choose


def certificate_names(cert_file: str) -> frozenset[str]:
    from cryptography import x509

    certificate = x509.load_pem_x509_certificate(read_certificate(cert_file))
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return frozenset()
    return frozenset(name.lower() for name in found.value.get_values_for_type(x509.DNSName))


def name_matches(asked: str, known: frozenset[str]) -> bool:
    return asked in known or f"*.{asked.partition('.')[2]}" in known


def read_certificate(cert_file: str) -> bytes:
    """The PEM text; TlsError when it cannot be read."""
    try:
        with open(cert_file, "rb") as file:
            return file.read()
    except OSError as error:
        raise TlsError(f"open {cert_file}: {(error.strerror or str(error)).lower()}") from error


def certificate_end(pem: bytes) -> str:
    """When a certificate stops being valid, RFC 3339."""
    from cryptography import x509

    certificate = x509.load_pem_x509_certificate(pem)
    return certificate.not_valid_after_utc.strftime("%Y-%m-%dT%H:%M:%SZ")


def suite_name(openssl: str) -> str:
    """A suite as the reference and its monitoring spell it."""
    return GO_SUITES.get(openssl, openssl)
