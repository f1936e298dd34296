"""Certificates that a test makes for itself with the openssl command; nothing of them outlives its folder."""

import pathlib
import ssl
import subprocess
from dataclasses import dataclass


def openssl(*arguments: object) -> str:
    return subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True, text=True).stdout


def speaks(address: str, version: str) -> bool:
    """Whether hands can be shaken by "tls1_1", "tls1_2" or "tls1_3" alone."""
    command = ["openssl", "s_client", "-connect", address, f"-{version}", "-cipher", "DEFAULT:@SECLEVEL=0", "-alpn", "h2"]
    return subprocess.run(command, input=b"", capture_output=True, timeout=60).returncode == 0


def end_seconds(certificate: pathlib.Path) -> float:
    """When it expires, since the epoch."""
    return ssl.cert_time_to_seconds(openssl("x509", "-in", certificate, "-noout", "-enddate").strip().partition("=")[2])


@dataclass(frozen=True)
class Pair:
    certificate: pathlib.Path
    key: pathlib.Path

    def serial(self) -> str:
        """Hexadecimal digits, as ssl.SSLSocket.getpeercert has them."""
        return openssl("x509", "-in", self.certificate, "-noout", "-serial").strip().partition("=")[2]


class Authority:
    """Signs certificates of servers at 127.0.0.1 and localhost, and of clients."""

    def __init__(self, folder: pathlib.Path, name: str, days: int = 2):
        self._folder = folder
        self._name = name
        self._pair = self._paths("ca")
        new_key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", self._pair.key)
        openssl("req", "-x509", *new_key, "-out", self._pair.certificate, "-days", days, "-subj", f"/CN={name}")

    @property
    def certificate(self) -> pathlib.Path:
        return self._pair.certificate

    def issue(self, name: str, days: int = 2) -> Pair:
        """Below zero days: one that has expired."""
        pair = self._paths(name)
        request = self._folder / f"{self._name}-{name}.csr"
        names = "subjectAltName=IP:127.0.0.1,DNS:localhost"
        new_key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", pair.key)
        openssl("req", "-new", *new_key, "-out", request, "-subj", f"/CN={name}", "-addext", names)
        signing = ("-CA", self._pair.certificate, "-CAkey", self._pair.key, "-CAcreateserial")
        openssl("x509", "-req", "-in", request, "-out", pair.certificate, *signing, "-days", days, "-copy_extensions", "copy")
        return pair

    def _paths(self, name: str) -> Pair:
        return Pair(self._folder / f"{self._name}-{name}.pem", self._folder / f"{self._name}-{name}.key")
