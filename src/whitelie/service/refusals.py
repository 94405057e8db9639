"""Every error code of the service, and its HTTP status.

An error is `{"error": {"code", "message", "field"?}}`. A request that is refused changes nothing.
"""

from dataclasses import dataclass

import msgspec

from whitelie.errors import WhitelieError

STATUS = {
    "malformed_request": 400,
    "malformed_json": 400,
    "unknown_key": 401,
    "not_allowed": 403,
    "origin_not_allowed": 403,
    "not_found": 404,
    "unknown_experiment": 404,
    "method_not_allowed": 405,
    "request_timeout": 408,
    "experiment_paused": 409,
    "experiment_stopped": 409,
    "experiment_shipped": 409,
    "not_shipped": 409,
    "too_late_to_unship": 409,
    "changed_meanwhile": 409,
    "idempotency_conflict": 409,
    "token_expired": 410,
    "body_too_large": 413,
    "url_too_long": 414,
    "unsupported_media_type": 415,
    "invalid_field": 422,
    "invalid_bit": 422,
    "invalid_token": 422,
    "unknown_arm": 422,
    "epsilon_above_ceiling": 422,
    "too_many_decisions": 429,
    "headers_too_large": 431,
    "internal_error": 500,
    "clock_jumped": 503,
    "too_many_connections": 503,
    "store_unavailable": 503,
}
"""The HTTP status of every code."""


@dataclass
class Refusal(WhitelieError, ValueError):
    """A request was refused; `retry_after` says after how many seconds to try again."""

    code: str
    message: str
    field: str | None = None
    retry_after: int | None = None

    def __str__(self) -> str:
        return self.message if self.field is None else f"{self.field}: {self.message}"

    @property
    def status(self) -> int:
        """The HTTP status."""
        return STATUS[self.code]

    @property
    def body(self) -> bytes:
        """The body of the answer, as JSON."""
        return msgspec.json.encode(Error(ErrorDetail(self.code, self.message, self.field)))


class ErrorDetail(msgspec.Struct, omit_defaults=True):
    """What was refused: a code for programs, a sentence for people, and the field."""

    code: str
    message: str
    field: str | None = None


class Error(msgspec.Struct):
    """The body of every error."""

    error: ErrorDetail


CLOCK_TO_DO = (
    "set the server's clock right; if it is right now, restart the service, which confirms it"
)
"""What an operator does about a clock that has jumped."""

INTERNAL_ERROR = Refusal("internal_error", "this is a fault of the service; it has been logged")


def unavailable() -> Refusal:
    """Return the refusal for as long as the store does not work."""
    message = "the store cannot be written now; nothing was changed, try again"
    return Refusal("store_unavailable", message, retry_after=2)
