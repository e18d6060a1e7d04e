"""Location of offloaded ledgers: a URI, from a policy's driver and bucket or from the broker's configuration.

A location is recorded with each ledger and read by brokers and jobs alike. So it has no process-specific part
and no secret: credentials, endpoints and regions come from the environment of each process.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final, NamedTuple
from urllib.parse import quote

from magnetar.broker.offload_policy.config import OffloadConfig
from magnetar.common.admin_types.offload import FILES_DRIVER, GCS_DRIVER, S3_DRIVERS
from magnetar.common.metadata.values import Policies
from magnetar.common.offload.offload_refusals import BadLocation
from magnetar.ledger.managed_ledger.offload_state import check_location

_SCHEMES: Final = {GCS_DRIVER: "gs", "azureblob": "abfs", "aliyun-oss": "oss"}
"""URI schemes of the drivers with a bucket, besides S3."""

_ENDPOINT_VARIABLES: Final = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")


class OffloadTarget(NamedTuple):
    """Location of offloaded ledgers, or the `problem` of the setting; both None when nothing is set."""

    location: str | None = None
    problem: str | None = None


def normalized(location: str) -> str:
    """Normalizes a location to a URI without a slash at its end. Raises BadLocation.

    An absolute path is converted to file://.
    """
    given = location.strip()
    return check_location(f"file://{given}" if given.startswith("/") else given)


def configured_target(
    config: OffloadConfig, cluster: str, environment: Mapping[str, str] = os.environ
) -> OffloadTarget:
    """Returns the location that applies where no policy sets one."""
    if config.location:
        return _checked(config.location)
    said = Policies.Offload(driver=config.driver, s3_bucket=config.s3_bucket, gcs_bucket=config.gcs_bucket)
    if config.s3_service_endpoint:
        said.s3_service_endpoint = config.s3_service_endpoint
    if config.file_system_uri:
        said.file_system_uri = config.file_system_uri
    return policy_target(said, cluster, environment)


def policy_target(
    policy: Policies.Offload, cluster: str, environment: Mapping[str, str] = os.environ
) -> OffloadTarget:
    """Returns the location that one policy sets; neither location nor problem when it sets none.

    Paths in a bucket begin with the cluster's name: clusters may share a bucket, but not a location.
    """
    driver = policy.driver.lower()
    if not driver:
        return OffloadTarget()
    if driver == FILES_DRIVER:
        return _checked(policy.file_system_uri) if policy.file_system_uri else OffloadTarget()
    scheme, bucket, endpoint = _SCHEMES.get(driver), policy.bucket, policy.service_endpoint
    if driver in S3_DRIVERS:
        scheme, bucket = "s3", bucket or policy.s3_bucket
        endpoint = endpoint or policy.s3_service_endpoint
        problem = _other_endpoint(endpoint, environment)
        if problem:
            return OffloadTarget(problem=problem)
    elif driver == GCS_DRIVER:
        bucket = bucket or policy.gcs_bucket
    if scheme is None:
        return OffloadTarget(problem=f"unknown offload driver {policy.driver!r:.100}")
    if not bucket:
        return OffloadTarget(problem=f"the offload driver {policy.driver} needs a bucket")
    return _checked(f"{scheme}://{bucket.strip('/')}/{quote(cluster, safe='')}")


def _checked(location: str) -> OffloadTarget:
    try:
        return OffloadTarget(normalized(location))
    except BadLocation as error:
        return OffloadTarget(problem=str(error))


def _other_endpoint(endpoint: str, environment: Mapping[str, str]) -> str | None:
    """Returns an error when a policy's endpoint differs from this process's: entries would be stored
    elsewhere.
    """
    if not endpoint:
        return None
    used = next((environment[name] for name in _ENDPOINT_VARIABLES if environment.get(name)), "")
    if _same_endpoint(endpoint, used):
        return None
    return (
        f"the offload policy has the endpoint {endpoint:.200}, and this broker's AWS_ENDPOINT_URL is "
        f"{used or 'not set'}: set it to that endpoint for brokers and jobs, or remove it from the policy"
    )


def _same_endpoint(named: str, used: str) -> bool:
    def plain(url: str) -> str:
        return url.strip().rstrip("/").lower()

    return plain(used) == plain(named) or plain(used).rpartition("://")[2] == plain(named)
