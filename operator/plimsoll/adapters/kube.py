"""The Kubernetes API through ``kubernetes.aio``, with plain dicts.

Typed models of the client drop fields they do not know, so none is used: its configuration (kubeconfig, service
account with token refresh, TLS) and its REST layer are, nothing above.
"""

import json
import os
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote, urlencode

import aiohttp
import yaml
from kubernetes.aio import config
from kubernetes.aio.client import ApiClient, Configuration

from plimsoll.adapters.clock import monotonic
from plimsoll.adapters.ports import (
    PODS,
    Change,
    ClusterError,
    ConflictError,
    ForbiddenError,
    GoneError,
    InvalidError,
    Kind,
    NotFoundError,
    Object,
    UnreachableError,
)

APPLY_PATCH = "application/apply-patch+yaml"
MERGE_PATCH = "application/merge-patch+json"
PAGE_SIZE = 100
"""Of services with their statuses some 2 MB of text, ten times that as objects: what a listing needs at most."""
WATCH_SECONDS = 240
SILENT_WATCH_SECONDS = 90
HTTP_REFUSED = 400
HTTP_NOT_MODIFIED = 304
DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"

_BY_STATUS: Mapping[int, type[ClusterError]] = {
    400: InvalidError,
    401: ForbiddenError,
    403: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
    410: GoneError,
    422: InvalidError,
    429: UnreachableError,
}
_UNTYPED = "failed to create typed patch object"
"""How the API server says, with status 500, that an apply names a field its schema does not have, or of another type:
asking again changes nothing."""

_STUMBLES = (TypeError, KeyError, ValueError, AttributeError)
"""What the client's own reader ends with on a kubeconfig of another shape than it expects."""


class CredentialsError(Exception):
    """There are no usable credentials; the message says where they were looked for."""


@dataclass(frozen=True)
class Access:
    """How to reach the API server, for a client that is not ours (Kopf's watches). ``repr`` hides the secrets."""

    server: str
    ca_path: str | None
    verify: bool
    scheme: str | None = field(repr=False, default=None)
    token: str | None = field(repr=False, default=None)
    certificate_path: str | None = None
    key_path: str | None = None


@dataclass(frozen=True)
class _Discovery:
    """What the API server served when last asked: group, version and plural of every resource."""

    etag: str
    resources: frozenset[tuple[str, str, str]]


async def load_configuration(kubeconfig: str = "", context: str = "") -> Configuration:
    """Credentials: the named kubeconfig, else the pod's service account, else the user's default kubeconfig.

    ``context``: another than the kubeconfig's current one; no service account is then looked for.

    Raises CredentialsError when there are none.
    """
    try:
        return await _load(kubeconfig, context)
    except (config.ConfigException, OSError, yaml.YAMLError, *_STUMBLES) as error:
        where = kubeconfig or "the pod's service account or ~/.kube/config"
        # The library's own words where it did not expect what is in the file say nothing to a person.
        why = "it is empty, or a part of it is not as in a kubeconfig" if isinstance(error, _STUMBLES) else error
        raise CredentialsError(f"no usable Kubernetes credentials in {where}: {why}") from error


async def _load(kubeconfig: str, context: str) -> Configuration:
    configuration = Configuration()
    # Kopf ignores proxy variables unless told otherwise; two halves of one operator must take the same road.
    configuration.client_session_kwargs = {"trust_env": False}
    configuration.connection_pool_maxsize = 32
    if kubeconfig or context:
        _check_there(kubeconfig)
        await config.load_kube_config(
            config_file=kubeconfig or None, context=context or None, client_configuration=configuration
        )
        return configuration
    try:
        config.load_incluster_config(client_configuration=configuration)
    except config.ConfigException:
        _check_there()
        await config.load_kube_config(client_configuration=configuration)
    return configuration


def _check_there(kubeconfig: str = "") -> None:
    """A file that is not there is said to be so; the client would miss a key in it."""
    paths = (kubeconfig or config.KUBE_CONFIG_DEFAULT_LOCATION).split(os.pathsep)
    if not any(path and Path(path).expanduser().exists() for path in paths):
        raise config.ConfigException(f"{' and '.join(paths)} does not exist")


def default_namespace(kubeconfig: str = "") -> str:
    """The namespace of the kubeconfig's current context, as kubectl takes it; ``default`` when it names none."""
    try:
        _, current = config.list_kube_config_contexts(config_file=kubeconfig or None)
    except (config.ConfigException, OSError, yaml.YAMLError):
        return "default"
    return str((current.get("context") or {}).get("namespace") or "default")


def context_names(kubeconfig: str = "") -> list[str]:
    """Every context of a kubeconfig. Raises CredentialsError when it cannot be read."""
    try:
        contexts, _ = config.list_kube_config_contexts(config_file=kubeconfig or None)
    except (config.ConfigException, OSError, yaml.YAMLError, *_STUMBLES) as error:
        raise CredentialsError(f"no contexts in {kubeconfig or '~/.kube/config'}: {error}") from error
    return [str(each["name"]) for each in contexts]


class KubeCluster:
    """Cluster port over one API server."""

    def __init__(
        self,
        configuration: Configuration,
        request_timeout_seconds: float = 15.0,
        count_write: Callable[[str], None] = lambda _resource: None,
    ) -> None:
        self._client = ApiClient(configuration)
        self._timeout = request_timeout_seconds
        self._answered_seconds = monotonic()
        self._failing = False
        self._count_write = count_write
        self._discovery: _Discovery | None = None

    def silent_seconds(self) -> float:
        """How long ago the API server last answered anything; 0 when it answered the last call."""
        return monotonic() - self._answered_seconds if self._failing else 0.0

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def access(self) -> Access:
        """The credentials as they are now; tokens rotate, so ask again."""
        headers: dict[str, str] = {}
        await self._client.update_params_for_auth(headers, [], ["BearerToken"], "", "", None)
        scheme, _, token = headers.get("authorization", "").partition(" ")
        chosen = self._client.configuration
        return Access(
            server=chosen.host,
            ca_path=chosen.ssl_ca_cert,
            verify=chosen.verify_ssl,
            scheme=scheme or None,
            token=token or None,
            certificate_path=chosen.cert_file,
            key_path=chosen.key_file,
        )

    async def get(self, kind: Kind, namespace: str, name: str) -> Object:
        """One object; NotFoundError when there is none."""
        return await self._request("GET", _path(kind, namespace, name))

    async def list(
        self, kind: Kind, namespace: str | None = None, selector: str = "", fields: str = ""
    ) -> AsyncIterator[Object]:
        """All objects of a kind, page by page. An expired page token starts the listing anew at the caller's."""
        chosen = {"labelSelector": selector, "fieldSelector": fields}
        query = {"limit": str(PAGE_SIZE), **{key: value for key, value in chosen.items() if value}}
        while True:
            page = await self._request("GET", _path(kind, namespace), query)
            for item in page.get("items") or ():
                yield item
            following = page.get("metadata", {}).get("continue")
            if not following:
                return
            query["continue"] = following

    async def version(self, kind: Kind, namespace: str | None = None) -> str:
        """A version to watch from: what a listing made after this call shows is at least as new."""
        page = await self._request("GET", _path(kind, namespace), {"limit": "1"})
        return str(page["metadata"]["resourceVersion"])

    async def watch(self, kind: Kind, namespace: str | None, selector: str, since: str) -> AsyncIterator[Change]:
        """Changes after a listing's version, until the server ends the stream; GoneError when it is too old."""
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": since,
            "labelSelector": selector,
            "timeoutSeconds": str(WATCH_SECONDS),
        }
        # Bookmarks come every minute: a stream that says nothing for longer is dead.
        timeout = aiohttp.ClientTimeout(total=None, connect=5, sock_read=SILENT_WATCH_SECONDS)
        path = _path(kind, namespace)
        response = await self._send("GET", path, query, None, "", timeout)
        try:
            async for line in response.content:
                event = json.loads(line)
                if event["type"] == "ERROR":
                    raise _error("WATCH", path, int(event["object"].get("code", 0)), line, None)
                if event["type"] != "BOOKMARK":
                    yield Change(event["type"] == "DELETED", event["object"])
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise UnreachableError(f"WATCH {path}: {error or type(error).__name__}") from error
        finally:
            response.close()

    async def apply(
        self, kind: Kind, manifest: Object, manager: str, *, subresource: str = "", force: bool = True
    ) -> Object:
        """Server-side apply; the object as the API server then holds it."""
        meta = manifest["metadata"]
        path = _path(kind, meta.get("namespace"), meta["name"], subresource)
        query = {"fieldManager": manager, "force": "true" if force else "false"}
        return await self._write("PATCH", kind, path, query, manifest, APPLY_PATCH)

    async def annotate(
        self, kind: Kind, target: Object, annotations: Mapping[str, str | None], manager: str, *, dry_run: bool = False
    ) -> Object:
        """Set annotations of this very object (by uid); None removes one. A dry run is the API server's own."""
        meta = target["metadata"]
        query = {"fieldManager": manager} | ({"dryRun": "All"} if dry_run else {})
        body = {"metadata": {"uid": meta["uid"], "annotations": dict(annotations)}}
        path = _path(kind, meta["namespace"], meta["name"])
        return await self._write("PATCH", kind, path, query, body, MERGE_PATCH)

    async def delete(self, kind: Kind, namespace: str, name: str, uid: str, *, version: str = "") -> None:
        """Delete this very object (by uid), at this version if one is given; gone already is fine.

        What it owns goes after it: of a Job the API server would otherwise leave the pods.
        """
        precondition = {"uid": uid} | ({"resourceVersion": version} if version else {})
        body = {
            "kind": "DeleteOptions",
            "apiVersion": "v1",
            "preconditions": precondition,
            "propagationPolicy": "Background",
        }
        try:
            await self._write("DELETE", kind, _path(kind, namespace, name), {}, body)
        except NotFoundError:
            return

    async def create(self, kind: Kind, manifest: Object) -> Object:
        """Create an object that nobody updates afterwards."""
        return await self._write("POST", kind, _path(kind, manifest["metadata"]["namespace"]), {}, manifest)

    async def log(
        self, namespace: str, pod: str, container: str, *, previous: bool, tail_lines: int, limit_bytes: int
    ) -> str:
        """The end of a container's log; ``previous``: of its run before this one."""
        query = {
            "container": container,
            "previous": str(previous).lower(),
            "tailLines": str(tail_lines),
            "limitBytes": str(limit_bytes),
        }
        path, timeout = _path(PODS, namespace, pod, "log"), aiohttp.ClientTimeout(total=self._timeout, connect=5)
        raw = await _body("GET", path, await self._send("GET", path, query, None, "", timeout))
        return raw.decode("utf-8", "replace")

    async def ask_pod(self, namespace: str, pod: str, port: int, path: str) -> Object:
        """What a pod answers to a GET, as JSON, by way of the API server (a get of pods/proxy)."""
        prefix = _path(PODS, namespace)
        return await self._request("GET", f"{prefix}/{quote(pod, safe='')}:{port}/proxy{path}")

    async def replace(self, kind: Kind, manifest: Object) -> Object:
        """Replace just the version that the manifest names; ConflictError when it has changed since.

        For the Lease alone, which is renewed for ever: not counted among the writes.
        """
        meta = manifest["metadata"]
        return await self._request("PUT", _path(kind, meta["namespace"], meta["name"]), {}, manifest)

    async def served(self, kind: Kind) -> bool:
        """Whether the API server serves this kind now."""
        prefix = _prefix(kind)
        try:
            resources = await self._request("GET", prefix)
        except NotFoundError:
            return False
        return any(r.get("name") == kind.plural for r in resources.get("resources") or ())

    async def schema(self, kind: Kind) -> Object | None:
        """The OpenAPI schema under which this kind is served; None when none is published (yet)."""
        try:
            document = await self._request("GET", f"/openapi/v3{_prefix(kind)}")
        except NotFoundError:
            return None
        wanted = {"group": kind.group, "version": kind.version, "kind": kind.kind}
        schemas: Iterable[Object] = document.get("components", {}).get("schemas", {}).values()
        return next((s for s in schemas if wanted in (s.get("x-kubernetes-group-version-kind") or ())), None)

    async def which_served(self, kinds: Collection[Kind]) -> frozenset[Kind]:
        """Those of the kinds that the API server serves now: one request, answered with 304 while nothing changes.

        Aggregated discovery is there by default since Kubernetes 1.27; an older server, or one behind a proxy that
        drops what we accept, is asked kind by kind.
        """
        self._discovery = await self._discovered(self._discovery)
        if self._discovery is None:
            return frozenset([kind for kind in kinds if await self.served(kind)])
        return frozenset(kind for kind in kinds if (kind.group, kind.version, kind.plural) in self._discovery.resources)

    async def _discovered(self, known: "_Discovery | None") -> "_Discovery | None":
        conditions = {"If-None-Match": known.etag} if known and known.etag else {}
        timeout = aiohttp.ClientTimeout(total=self._timeout, connect=5)
        response = await self._send("GET", "/apis", None, None, "", timeout, {"Accept": DISCOVERY, **conditions})
        if response.status == HTTP_NOT_MODIFIED:
            response.release()
            return known
        found = await _json("GET", "/apis", response)
        if found.get("kind") != "APIGroupDiscoveryList":
            return None
        return _Discovery(response.headers.get("ETag", ""), frozenset(_resources(found)))

    async def _write(
        self, method: str, kind: Kind, path: str, query: Mapping[str, str], body: Object, content_type: str = ""
    ) -> Object:
        self._count_write(kind.plural)
        return await self._request(method, path, query, body, content_type)

    async def _request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Object | None = None,
        content_type: str = "",
    ) -> Object:
        timeout = aiohttp.ClientTimeout(total=self._timeout, connect=5)
        return await _json(method, path, await self._send(method, path, query, body, content_type, timeout))

    async def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        body: Object | None,
        content_type: str,
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - aiohttp's own, by phase
        extra_headers: Mapping[str, str] | None = None,
    ) -> aiohttp.ClientResponse:
        headers = {"Accept": "application/json", "Content-Type": content_type or "application/json"}
        headers |= extra_headers or {}
        await self._client.update_params_for_auth(headers, [], ["BearerToken"], "", "", None)
        url = self._client.configuration.host + path + (f"?{urlencode(query)}" if query else "")
        try:
            answer = await self._client.rest_client.request(
                method, url, headers=headers, body=body, _request_timeout=timeout
            )
            response: aiohttp.ClientResponse = answer.response
            refused = await response.read() if response.status >= HTTP_REFUSED else b""
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            self._failing = True
            reason = str(error) or type(error).__name__
            raise UnreachableError(f"{method} {path}: no answer from the API server ({reason})") from error
        self._failing, self._answered_seconds = False, monotonic()
        if response.status >= HTTP_REFUSED:
            raise _error(method, path, response.status, refused, response.headers.get("Retry-After"))
        return response


async def _json(method: str, path: str, response: aiohttp.ClientResponse) -> Object:
    return cast("Object", json.loads(await _body(method, path, response)))


async def _body(method: str, path: str, response: aiohttp.ClientResponse) -> bytes:
    try:
        return await response.read()
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise UnreachableError(f"{method} {path}: the answer broke off ({error})") from error


def _resources(discovery: Object) -> Iterator[tuple[str, str, str]]:
    """Group, version and plural of every resource in an aggregated discovery document."""
    for group in discovery.get("items") or ():
        for version in group.get("versions") or ():
            for resource in version.get("resources") or ():
                yield group["metadata"]["name"], version["version"], resource["resource"]


def _prefix(kind: Kind) -> str:
    return f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"


def _path(kind: Kind, namespace: str | None = None, name: str = "", subresource: str = "") -> str:
    parts = [_prefix(kind)]
    if namespace:
        parts += ["namespaces", quote(namespace, safe="")]
    parts.append(kind.plural)
    parts += [quote(p, safe="") for p in (name, subresource) if p]
    return "/".join(parts)


def _error(method: str, path: str, status: int, payload: bytes, retry_after: str | None) -> ClusterError:
    try:
        detail: Any = json.loads(payload)
        message = str(detail.get("message") or detail)
    except (ValueError, AttributeError):
        message = payload[:300].decode("utf-8", "replace")
    wait = float(retry_after) if retry_after and retry_after.isdigit() else None
    error_class = InvalidError if _UNTYPED in message else _BY_STATUS.get(status, UnreachableError)
    return error_class(f"{method} {path}: {status} {message}", status=status, retry_after_seconds=wait)
