"""A job's evidence as one ZIP, made while it is sent: documents, files with their checksums, and what happened."""

import hashlib
import io
import json
import zipfile
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.apps import apps
from django.db import transaction
from django.utils import timezone

from artifacts.models import JobArtifact
from jobs import audit
from jobs.models import AgentJob, AuditEvent
from jobs.services import exports
from jobs.services.errors import NoResults, NotFound

from .names import safe_name
from .storage import calling

BLOCK = 1024 * 1024  # bytes of a file in memory at once
EARLIEST = 1980  # the first year that a ZIP can name
RESULTS = {"json": "json", "ctrf": "ctrf.json", "junit": "junit.xml"}  # by form: how the file ends
# What happened is told by these columns of a job's history.
HISTORY = (
    "status", "verdict", "error", "failure_class", "claimed_by", "ended_by", "cancel_requested_by", "cancel_reason",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Export:
    """A file name for the archive, and its bytes, which can be read once."""

    name: str
    blocks: Iterator[bytes]


@transaction.atomic
def export(*, job_id: UUID, by: str, sensitive: bool) -> Export:
    """The evidence of all attempts of a job, with an audit line that `by` took it; `sensitive`: whether `by` may.

    Sensitive files are left out for others, and named as withheld. Raises NotFound; while it is read
    StorageUnavailable, which leaves the archive without its end: nobody takes a part for the whole.
    """
    job = AgentJob.objects.filter(pk=job_id).first()
    if job is None:
        raise NotFound
    chain = list(AgentJob.objects.chain(job.chain_id).defer("results")) or [job]
    files = list(JobArtifact.objects.filter(job__in=chain).order_by("job__attempt", "created_at", "name"))
    audit.record(audit.Tag.EVIDENCE_EXPORTED, job, actor=by, details={"files": len(files), "sensitive": sensitive})
    return Export(name=f"evidence-{job.chain_id}.zip", blocks=_archive(chain, files, sensitive=sensitive))


def _archive(chain: Sequence[AgentJob], files: Sequence[JobArtifact], *, sensitive: bool) -> Iterator[bytes]:
    sink = _Sink()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_STORED) as archive:
        _add(archive, "job.json", [_attempt(row) for row in chain])
        for row in chain:
            for form, ending in RESULTS.items():
                with suppress(NoResults):
                    rendered = exports.results_of(job=row, form=form)
                    member = _member(f"results/attempt-{row.attempt}.{ending}", timezone.now())
                    archive.writestr(member, rendered.content)
        _add(archive, "timeline.json", _timeline(chain))
        yield sink.drain()
        attempts, listed, sums = {row.pk: row.attempt for row in chain}, [], []
        for number, file in enumerate(files, 1):
            path = f"files/attempt-{attempts[file.job_id]}/{number:03d}-{safe_name(file.name)}"
            entry = {
                "path": path, "name": file.name, "attempt": attempts[file.job_id], "id": file.pk,
                "content_type": file.content_type, "size_bytes": file.size_bytes, "sha256": file.sha256,
                "received_sha256": file.announced_sha256, "masked": file.masked, "created_at": file.created_at,
                "verified_at": file.verified_at, "sensitive": file.sensitive,
            }  # fmt: skip
            listed.append(entry)
            if file.sensitive and not sensitive:
                entry |= {"path": None, "state": "withheld"}
                continue
            digest = yield from _copied(archive, sink, path, file)
            if digest is None:
                entry |= {"path": None, "state": "missing"}
                continue
            entry["state"] = "included" if file.sha256 in (digest, None) else "differs"
            sums.append(f"{digest}  {path}\n")
        _add(archive, "artifacts.json", listed)
        archive.writestr(_member("SHA256SUMS", timezone.now()), "".join(sums))
    yield sink.drain()


def _copied(
    archive: zipfile.ZipFile, sink: "_Sink", path: str, file: JobArtifact
) -> Generator[bytes, None, str | None]:
    """Copy a file into the archive block by block; returns its digest, or None if there are no bytes."""
    digest, start = hashlib.sha256(), 0
    with calling() as store:
        try:
            block = store.part(file.storage_path, start=0, length=BLOCK)
        except FileNotFoundError:
            return None
        with archive.open(_member(path, file.created_at), "w", force_zip64=True) as member:
            while block:
                member.write(block)
                digest.update(block)
                start += len(block)
                yield sink.drain()
                block = store.part(file.storage_path, start=start, length=BLOCK)
    return digest.hexdigest()


def _attempt(row: AgentJob) -> Mapping[str, Any]:
    names = (
        "id", "root_id", "attempt", "max_attempts", "status", "verdict", "error", "failure_class", "kind", "spec",
        "labels", "run_ref", "created_by", "claimed_by", "queued_at", "started_at", "finished_at",
        "cancel_requested_at", "cancel_requested_by", "cancel_reason", "details",
    )  # fmt: skip
    return {"agent": row.agent_id} | {name: getattr(row, name) for name in names}


def _timeline(chain: Sequence[AgentJob]) -> list[Mapping[str, Any]]:
    """Changes of the rows and lines of the audit trail, in the order of their times."""
    attempts = {row.pk: row.attempt for row in chain}
    history: Any = apps.get_model("jobs", "AgentJobEvent")  # made by pghistory
    lines: list[dict[str, Any]] = [
        {"at": event.pgh_created_at, "attempt": attempts[event.pgh_obj_id], "what": event.pgh_label}
        | {name: getattr(event, name) for name in HISTORY if getattr(event, name) is not None}
        for event in history.objects.filter(pgh_obj_id__in=attempts).order_by("pgh_id")
    ]
    lines += [
        {"at": event.at, "attempt": attempts[event.subject_id], "what": event.tag, "by": event.actor,
         "reason": event.reason, "details": event.details}
        for event in AuditEvent.objects.filter(subject_id__in=attempts).order_by("id")
    ]  # fmt: skip
    return sorted(lines, key=lambda line: line["at"])


def _add(archive: zipfile.ZipFile, path: str, document: object) -> None:
    text = json.dumps(document, indent=2, ensure_ascii=False, default=_plain)
    archive.writestr(_member(path, timezone.now()), text.encode("utf-8", "replace"))


def _plain(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)


def _member(path: str, at: datetime) -> zipfile.ZipInfo:
    at = max(at, datetime(EARLIEST, 1, 1, tzinfo=at.tzinfo))
    member = zipfile.ZipInfo(path, at.timetuple()[:6])
    member.external_attr = 0o600 << 16
    return member


class _Sink(io.RawIOBase):
    """Takes what an archive writes until it is sent; it cannot go back, as the network cannot."""

    def __init__(self) -> None:
        super().__init__()
        self._parts: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        self._parts.append(bytes(data))
        return len(self._parts[-1])

    def drain(self) -> bytes:
        """What was written since the last time."""
        written, self._parts = b"".join(self._parts), []
        return written
