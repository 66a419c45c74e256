"""E-mail, through the mail server that the installation's settings name."""

from smtplib import SMTPException

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.mail import EmailMessage
from django.core.validators import validate_email

from .webhooks import UndeliveredError

MAX_RECIPIENTS = 20
MAX_SUBJECT = 200


def recipients(address: str) -> list[str]:
    """The single addresses of a channel: separated by commas or white space."""
    return list(dict.fromkeys(address.replace(",", " ").replace(";", " ").split()))


def address_problem(address: str) -> str:
    """What is wrong with the recipients, or an empty text."""
    if not settings.EMAIL_HOST:
        return "No mail server is configured: set AGENTSTORE_SMTP_URL."
    found = recipients(address)
    if not 1 <= len(found) <= MAX_RECIPIENTS:
        return f"1 to {MAX_RECIPIENTS} addresses, separated by commas."
    for one in found:
        try:
            validate_email(one)
        except ValidationError:
            return f"{one} is no e-mail address."
    return ""


def send(address: str, *, message_id: str, title: str, body: str) -> None:
    """Send one mail to all recipients; a repetition carries the same Message-ID. Raises UndeliveredError."""
    if not settings.EMAIL_HOST:
        raise UndeliveredError("No mail server is configured: set AGENTSTORE_SMTP_URL.")
    domain = settings.DEFAULT_FROM_EMAIL.rpartition("@")[2].rstrip(">")
    message = EmailMessage(
        subject=" ".join(title.split())[:MAX_SUBJECT],
        body=body,
        to=recipients(address),
        headers={"Message-ID": f"<{message_id}@{domain}>", "Auto-Submitted": "auto-generated"},
    )
    try:
        message.send()
    except (SMTPException, OSError, ValueError) as error:
        raise UndeliveredError(f"The mail server did not take it: {_reason(error)}") from None


def _reason(error: Exception) -> str:
    match error:
        case TimeoutError():
            return "it did not answer in time."
        case OSError(strerror=str(text)):
            return f"{text}."
    return str(error)[:300] or type(error).__name__
