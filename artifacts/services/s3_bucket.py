"""What a bucket of evidence must be: there, closed to the public, tidy after broken uploads, open to our own origin."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from botocore.exceptions import ClientError

from .refusals import SetupRefused
from .storage import Step

ABANDONED_DAYS = 1  # a multipart upload that nobody completed is paid for until it is removed
CLOSED = dict.fromkeys(("BlockPublicAcls", "IgnorePublicAcls", "BlockPublicPolicy", "RestrictPublicBuckets"), True)
OURS = "agentstore"  # the id of our rules; those of others in an adopted bucket stay as they are

Rule = Mapping[str, Any]
Read = Callable[..., Mapping[str, Any]]


def set_up(client: Any, *, bucket: str, region: str, origin: str) -> Sequence[Step]:
    """Create the bucket or check it; what was right before is left alone. Raises SetupRefused.

    Every rule is read back: some servers accept what they do not keep, and others refuse what they do not know.
    """
    named = {"Bucket": bucket}
    steps = [_bucket(client, bucket, region)]
    steps.append(
        _kept(
            "public access blocked",
            lambda: _closed(_said(client.get_public_access_block, named)),
            lambda: client.put_public_access_block(**named, PublicAccessBlockConfiguration=CLOSED),
        )
    )
    tidy: Rule = {
        "ID": OURS, "Status": "Enabled", "Filter": {"Prefix": ""},
        "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": ABANDONED_DAYS},
    }  # fmt: skip
    steps.append(
        _kept(
            "abandoned multipart uploads removed",
            lambda: _holds(_rules(client.get_bucket_lifecycle_configuration, named, "Rules"), tidy),
            lambda: client.put_bucket_lifecycle_configuration(
                **named,
                LifecycleConfiguration={
                    "Rules": _joined(_rules(client.get_bucket_lifecycle_configuration, named, "Rules"), tidy)
                },
            ),
        )
    )
    direct: Rule = {
        "ID": OURS, "AllowedMethods": ["PUT"], "AllowedOrigins": [origin], "AllowedHeaders": ["*"],
        "MaxAgeSeconds": 3000,
    }  # fmt: skip
    steps.append(
        _kept(
            "direct uploads allowed (CORS)",
            lambda: _holds(_rules(client.get_bucket_cors, named, "CORSRules"), direct),
            lambda: client.put_bucket_cors(
                **named,
                CORSConfiguration={"CORSRules": _joined(_rules(client.get_bucket_cors, named, "CORSRules"), direct)},
            ),
        )
    )
    return steps


def _bucket(client: Any, bucket: str, region: str) -> Step:
    try:
        client.head_bucket(Bucket=bucket)
    except ClientError as error:
        if error.response["ResponseMetadata"]["HTTPStatusCode"] != 404:
            raise SetupRefused(f"The bucket {bucket} cannot be looked at: {_code(error)}.") from None
    else:
        return Step(what=f"bucket {bucket}", outcome="kept")
    # The one region that must not be named.
    place = {} if region == "us-east-1" else {"CreateBucketConfiguration": {"LocationConstraint": region}}
    try:
        client.create_bucket(Bucket=bucket, **place)
    except ClientError as error:
        if _code(error) != "BucketAlreadyOwnedByYou":  # somebody set it up at the same moment
            raise SetupRefused(f"The bucket {bucket} cannot be created: {_code(error)}.") from None
    return Step(what=f"bucket {bucket}", outcome="made")


def _kept(what: str, is_so: Callable[[], bool], make: Callable[[], object]) -> Step:
    try:
        if is_so():
            return Step(what=what, outcome="kept")
        make()
        return Step(what=what, outcome="made" if is_so() else "not kept by this server")
    except ClientError as error:
        return Step(what=what, outcome=f"refused by this server ({_code(error)})")


def _closed(found: Mapping[str, Any]) -> bool:
    said = found.get("PublicAccessBlockConfiguration", {})
    return all(said.get(name) is True for name in CLOSED)


def _rules(read: Read, named: Mapping[str, str], key: str) -> list[Rule]:
    return list(_said(read, named).get(key, []))


def _said(read: Read, named: Mapping[str, str]) -> Mapping[str, Any]:
    try:
        return read(**named)
    except ClientError as error:
        if _code(error).startswith("NoSuch"):  # S3's way to say that nothing was configured
            return {}
        raise


def _holds(rules: Sequence[Rule], ours: Rule) -> bool:
    return any(all(rule.get(name) == value for name, value in ours.items()) for rule in rules)


def _joined(rules: Sequence[Rule], ours: Rule) -> list[Rule]:
    return [*(rule for rule in rules if rule.get("ID") != ours["ID"]), ours]


def _code(error: ClientError) -> str:
    """The server's short word; its long text may hold addresses and account numbers."""
    return str(error.response.get("Error", {}).get("Code", "unknown error"))
