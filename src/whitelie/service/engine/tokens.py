"""Tokens: what a device gets with a decision, so that it can report on it once.

A token is AES-256-SIV (RFC 5297) over which arm of which experiment was shown, the decision's
number, and when it was issued and expires. Without the secret nothing in it can be read or changed,
so it says nothing about traffic either. SIV needs no nonce where no message is sealed twice, and a
decision's number is never used twice. (AES-GCM would need a random nonce per token,
and is safe for 2^32 of them under one key: a busy service issues as many within days.) The first
bytes name the secret, so that secrets can be rotated.
"""

import binascii
import hashlib
import secrets
import struct
from collections.abc import Sequence

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESSIV

from whitelie.service.store.contract import Decision

_FIELDS = struct.Struct(">IIIQII")
_NAME = 4
_SIZE = _NAME + 16 + _FIELDS.size  # the name of the secret, the tag, and what is sealed
assert _SIZE % 3 == 0  # so that base64 has no padding, and no second spelling
TOKEN_LENGTH = _SIZE // 3 * 4
"""The length of every token, in characters."""

_TO_URL = bytes.maketrans(b"+/", b"-_")
_FROM_URL = bytes.maketrans(b"-_+/", b"+/!!")


def fingerprint(secret: bytes) -> bytes:
    """Return a hash of a secret, by which servers find out whether they share it."""
    return hashlib.sha256(b"whitelie fingerprint " + secret).digest()


def worthless_token() -> str:
    """Return random text in the form of a token, which opens under no secret."""
    return secrets.token_urlsafe(_SIZE)


class TokenCipher:
    """Seals tokens with the first secret, and opens those that were sealed with any."""

    def __init__(self, sealing: Sequence[bytes]) -> None:
        self.replace(sealing)

    def replace(self, sealing: Sequence[bytes]) -> None:
        """Use these secrets instead of all others."""
        self._ciphers = {}
        for secret in reversed(sealing):
            key = hashlib.sha512(b"whitelie token " + secret).digest()
            self._name = hashlib.sha256(key).digest()[:_NAME]
            self._cipher = self._ciphers[self._name] = AESSIV(key)

    def seal(self, decision: Decision) -> str:
        """Return the token of a decision."""
        sealed = self._cipher.encrypt(_FIELDS.pack(*decision), None)
        return binascii.b2a_base64(self._name + sealed, newline=False).translate(_TO_URL).decode()

    def open(self, token: str) -> Decision | None:
        """Return the decision, or None if no secret of ours has sealed the token."""
        if len(token) != TOKEN_LENGTH:
            return None
        try:
            raw = binascii.a2b_base64(token.encode().translate(_FROM_URL), strict_mode=True)
            fields = self._ciphers[raw[:_NAME]].decrypt(raw[_NAME:], None)
        except (binascii.Error, KeyError, InvalidTag):
            return None
        return Decision._make(_FIELDS.unpack(fields))
