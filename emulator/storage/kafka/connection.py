"""One connection to one Kafka broker. Responses arrive in the order of the requests."""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from typing import Any

import kafka.errors
from kafka.net.sasl import get_sasl_mechanism
from kafka.protocol.parser import KafkaProtocol
from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

from emulator.storage.kafka.settings import KafkaSettings

CLIENT_ID = "geoemu"


class NoResponse(Exception):
    """No response of Kafka arrived. If the request was sent, it may have been executed."""


async def connect(settings: KafkaSettings, host: str, port: int) -> KafkaConnection:
    """Connect to a broker, and authenticate if SASL is configured. Raises NoResponse if the broker cannot be reached,
    and KafkaError if its certificate or the credentials are rejected."""
    timeout = settings.options.request_timeout_ms / 1000
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(timeout):
            name = host if settings.tls else None
            _, connection = await loop.create_connection(
                lambda: KafkaConnection(timeout), host, port, ssl=settings.tls, server_hostname=name
            )
    except ssl.SSLCertVerificationError as error:  # a retry would fail, too
        raise kafka.errors.KafkaConfigurationError(f"{host}:{port}: {error}") from error
    except (OSError, TimeoutError) as error:
        raise NoResponse(f"{host}:{port} cannot be reached: {error or 'no response'}") from error
    try:
        if settings.options.sasl_mechanism:
            await _authenticate(connection, settings)
    except BaseException:
        connection.close()
        raise
    return connection


class KafkaConnection(asyncio.Protocol):
    """A connection to one broker, created by `connect`."""

    def __init__(self, timeout_seconds: float) -> None:
        self.lost: NoResponse | None = None
        """Error after which the connection is unusable; None: it is usable."""
        self._timeout_seconds = timeout_seconds
        self._wire = KafkaProtocol(client_id=CLIENT_ID)
        self._waiting: deque[asyncio.Future[Any]] = deque()
        self._transport: asyncio.Transport | None = None

    async def send(self, request: Any) -> Any:
        """Send a request; return its response. Raises NoResponse, after which the connection is unusable."""
        if self.lost is not None:
            raise self.lost
        assert self._transport is not None
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append(answer)
        self._wire.send_request(request)
        self._transport.write(self._wire.send_bytes())
        try:
            async with asyncio.timeout(self._timeout_seconds):
                return await answer
        except TimeoutError:
            self._lose(NoResponse(f"no answer within {self._timeout_seconds:g} s"))
            assert self.lost is not None
            raise self.lost from None

    def close(self) -> None:
        """Close at once; pending requests raise `NoResponse`."""
        self._lose(NoResponse("the connection was closed"))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        try:
            answers = self._wire.receive_bytes(data)
        except (kafka.errors.KafkaError, ValueError, LookupError) as error:
            self._lose(NoResponse(f"a response could not be decoded: {error}"))
            return
        for _, answer in answers:
            future = self._waiting.popleft()
            if not future.done():
                future.set_result(answer)

    def connection_lost(self, error: Exception | None) -> None:
        self._lose(NoResponse(f"the connection was lost: {error or 'closed by Kafka'}"))

    def _lose(self, reason: NoResponse) -> None:
        if self.lost is not None:
            return
        self.lost = reason
        if self._transport is not None:
            self._transport.abort()
        for future in self._waiting:
            if not future.done():
                future.set_exception(reason)
        self._waiting.clear()


async def _authenticate(connection: KafkaConnection, settings: KafkaSettings) -> None:
    options = settings.options
    name = options.sasl_mechanism
    answer = await connection.send(SaslHandshakeRequest[1](mechanism=name))
    if answer.error_code:
        offered = ", ".join(answer.mechanisms)
        raise kafka.errors.UnsupportedSaslMechanismError(f"{name}; Kafka offers {offered}")
    mechanism = get_sasl_mechanism(name)(
        sasl_mechanism=name,
        sasl_plain_username=options.sasl_plain_username,
        sasl_plain_password=options.sasl_plain_password,
    )
    while not mechanism.is_done():
        answer = await connection.send(SaslAuthenticateRequest[1](auth_bytes=mechanism.auth_bytes()))
        if answer.error_code:
            raise kafka.errors.for_code(answer.error_code)(answer.error_message)
        try:
            mechanism.receive(answer.auth_bytes)
        except ValueError as error:
            raise kafka.errors.SaslAuthenticationFailedError(str(error)) from error
