"""Effects of the simulated network on bytes, and the callbacks that programs get."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from itertools import pairwise

import pytest

from emulator.config.link_shape import LinkShape
from emulator.net.network import SocketNetwork
from emulator.simulation.link import NetworkSettings
from emulator.simulation.simulation import Simulation

from .peers import EXACT, Peer, Server, connected, dial

Story = Callable[[Simulation], Awaitable[None]]


def play(scenario: Story, settings: NetworkSettings = EXACT, seed: int = 1) -> None:
    with Simulation(seed, network=settings) as simulation:
        simulation.run(scenario(simulation))  # type: ignore[arg-type]


@pytest.fixture
def simulation() -> Iterator[Simulation]:
    with Simulation(1, network=EXACT) as made:
        yield made


class TestConnecting:
    async def test_a_connection_takes_a_round_trip_and_bytes_take_one_way(self, simulation: Simulation):
        mine, theirs, _ = await connected(simulation)
        begin = simulation.now
        mine.transport.write(b"ping")
        await simulation.until(lambda: bool(theirs.received))
        assert theirs.times == [pytest.approx(begin + 0.05)]
        assert theirs.received == b"ping"

    async def test_both_ends_know_each_others_names(self, simulation: Simulation):
        mine, theirs, _ = await connected(simulation)
        assert mine.transport.get_extra_info("peername") == ("eu", 6650)
        assert theirs.transport.get_extra_info("peername") == mine.transport.get_extra_info("sockname")
        assert mine.transport.get_extra_info("sockname")[0] == "us"

    async def test_a_port_without_a_listener_refuses_after_a_round_trip(self, simulation: Simulation):
        simulation.host("eu")
        begin = simulation.now
        with pytest.raises(ConnectionRefusedError):
            await dial(simulation, "us", "eu")
        assert simulation.now == pytest.approx(begin + 0.1)
        _, _, server = await connected(simulation)
        server.listener.close()
        with pytest.raises(ConnectionRefusedError):
            await dial(simulation, "us", "eu")

    async def test_an_unknown_name_cannot_be_resolved(self, simulation: Simulation):
        with pytest.raises(OSError, match="no simulated host is called 'mars'"):
            await dial(simulation, "us", "mars")

    async def test_a_host_reaches_itself_by_any_of_its_names(self, simulation: Simulation):
        server = Server(simulation.host("us"))
        await simulation.host("us").ask(server.listen())
        for name in ("localhost", "127.0.0.1", "us"):
            await dial(simulation, "us", name)
        assert len(server.accepted) == 3

    async def test_a_port_is_had_once_and_any_port_is_a_free_one(self, simulation: Simulation):
        """A second listener gets EADDRINUSE, and no host listens at another's address."""
        network = simulation.host("us").network
        first = await network.listen(Peer, "", 6650)
        with pytest.raises(OSError) as refused:  # noqa: PT011
            await network.listen(Peer, "", 6650)
        assert refused.value.errno == errno.EADDRINUSE
        first.close()
        await network.listen(Peer, "us", 6650)
        some, other = await network.listen(Peer, "", 0), await network.listen(Peer, "", 0)
        assert len({some.port, other.port, 6650}) == 3
        with pytest.raises(OSError, match="cannot listen"):
            await network.listen(Peer, "eu", 7000)

    async def test_an_abandoned_connection_attempt_leaves_nothing_behind(self, simulation: Simulation):
        """A connection attempt that is given up; the server sees its end, if it ever saw its beginning."""

        async def impatient(simulation: Simulation) -> None:
            async with asyncio.timeout(0.12):
                await simulation.host("us").network.connect(Peer, "eu", 6650)

        _, _, server = await connected(simulation)
        simulation.network.hold("us", "eu")
        with pytest.raises(TimeoutError):
            await simulation.host("us").ask(impatient(simulation))
        simulation.network.heal()
        await asyncio.sleep(5)
        assert len(simulation.host("us").network.endpoints) == 1
        assert len(simulation.host("eu").network.endpoints) == 1
        assert len(server.accepted) == 1


class TestBytes:
    def test_bytes_arrive_in_order_however_they_are_cut(self):
        """Segments of odd sizes, with jitter, never overtake each other."""
        settings = NetworkSettings(
            between_locations=LinkShape(latency_ms=5, jitter_ms=50),
            segment_bytes_max=1000,
            odd_cut_probability=0.5,
        )

        async def scenario(simulation: Simulation) -> None:
            mine, theirs, _ = await connected(simulation)
            sent = b""
            for number in range(200):
                data = b"%d," % number * (number % 17)
                sent += data
                mine.transport.write(data)
                await asyncio.sleep(0.001 * (number % 3))
            await simulation.until(lambda: len(theirs.received) == len(sent))
            assert theirs.received == sent
            assert len(set(theirs.times)) > 20

        for seed in range(5):
            play(scenario, settings, seed)

    def test_a_message_can_be_cut_at_any_byte(self):
        settings = replace(EXACT, between_locations=LinkShape(5, 5), odd_cut_probability=0.5)
        cuts: set[int] = set()

        async def scenario(simulation: Simulation) -> None:
            mine, theirs, server = await connected(simulation)
            server.on_data = lambda peer, data: cuts.add(len(peer.received))
            mine.transport.write(b"0123456789")
            await simulation.until(lambda: len(theirs.received) == 10)

        for seed in range(200):
            play(scenario, settings, seed)
        assert cuts == set(range(1, 11))

    async def test_what_is_written_at_one_moment_travels_together(self, simulation: Simulation):
        """As a kernel would put it into one segment."""
        mine, theirs, _ = await connected(simulation)
        for _ in range(100):
            mine.transport.write(b"x")
        mine.transport.writelines([b"y", bytearray(b"z")])
        await simulation.until(lambda: len(theirs.received) == 102)
        assert len(theirs.times) == 1

    def test_bandwidth_is_shared_by_all_connections_of_a_link(self):
        """100 kB/s: two times 50 kB take a second; the other direction is not affected."""
        shape = LinkShape(latency_ms=10, bandwidth_bytes_per_second=100_000)
        settings = replace(EXACT, segment_bytes_max=1000)

        async def scenario(simulation: Simulation) -> None:
            mine, theirs, server = await connected(simulation)
            other = await dial(simulation, "us", "eu")
            await simulation.until(lambda: len(server.accepted) == 2)
            simulation.network.shape("us", "eu", shape)
            begin = simulation.now
            mine.transport.write(bytes(50_000))
            other.transport.write(bytes(50_000))
            server.on_data = lambda peer, data: peer.transport.write(data)
            both = [theirs, server.accepted[1]]
            await simulation.until(lambda: all(len(peer.received) == 50_000 for peer in both))
            assert max(peer.times[-1] for peer in both) == pytest.approx(begin + 1.01)
            assert max(b - a for a, b in pairwise(theirs.times)) == pytest.approx(0.01)
            await simulation.until(lambda: len(mine.received) == 50_000)
            assert mine.times[-1] <= begin + 1.07

        play(scenario, settings)

    async def test_what_takes_seconds_arrives_bit_by_bit(self, simulation: Simulation):
        """20 kB/s: bytes of the 60 kB arrive all the time, so the receiver does not take the sender for dead."""
        shape = LinkShape(latency_ms=10, bandwidth_bytes_per_second=20_000)

        mine, theirs, _ = await connected(simulation)
        simulation.network.shape("us", "eu", shape)
        begin = simulation.now
        mine.transport.write(bytes(60_000))
        await simulation.until(lambda: len(theirs.received) == 60_000)
        assert theirs.times[-1] == pytest.approx(begin + 3.01)
        assert max(b - a for a, b in pairwise([begin, *theirs.times])) < 0.1

    async def test_hosts_at_one_place_are_close_to_each_other_and_share_its_links(
        self, simulation: Simulation
    ):
        """A client in a region is cut off together with it."""
        simulation.host("client", location="us")
        mine, _, _ = await connected(simulation, "client", "us")
        begin = simulation.now
        far, _, _ = await connected(simulation, "client", "eu")
        assert simulation.now >= begin + 0.1
        simulation.network.cut("us", "eu")
        mine.transport.write(b"1")
        far.transport.write(b"1")
        await asyncio.sleep(60)
        assert mine.callbacks == ["made"]
        assert far.callbacks == ["made", "TimeoutError"]


class TestEnding:
    async def test_closing_sends_what_was_written_and_then_the_end(self, simulation: Simulation):
        """The buffered bytes are sent; both sides see a clean close."""
        mine, theirs, _ = await connected(simulation)
        mine.transport.write(bytes(1_000_000))
        mine.transport.close()
        mine.transport.close()  # nothing to do
        mine.transport.write(b"too late")
        assert mine.transport.is_closing()
        await simulation.until(lambda: theirs.lost_at is not None)
        assert len(theirs.received) == 1_000_000
        assert theirs.callbacks == ["made", "eof", "lost"]
        assert mine.callbacks == ["made", "pause", "lost"]
        assert not simulation.host("us").network.endpoints
        assert not simulation.host("eu").network.endpoints

    async def test_aborting_forgets_what_is_still_in_the_buffer(self, simulation: Simulation):
        mine, theirs, _ = await connected(simulation)
        mine.transport.write(bytes(1_000_000))
        mine.transport.abort()
        await simulation.until(lambda: theirs.lost_at is not None)
        assert len(theirs.received) == EXACT.receive_buffer_bytes
        assert mine.callbacks == ["made", "pause", "lost"]

    async def test_a_connection_can_be_closed_one_way(self, simulation: Simulation):
        """write_eof: the other side responds and then closes."""

        class Answers(Peer):
            def eof_received(self) -> bool:  # type: ignore[override]
                self.callbacks.append("eof")
                self.transport.write(b"answer to " + self.received)
                self.transport.close()
                return True

        await simulation.host("eu").network.listen(Answers, "", 6650)
        mine = await dial(simulation, "us", "eu")
        mine.transport.write(b"question")
        mine.transport.write_eof()
        with pytest.raises(RuntimeError):
            mine.transport.write(b"more")
        await simulation.until(lambda: mine.lost_at is not None)
        assert mine.received == b"answer to question"
        assert mine.callbacks == ["made", "eof", "lost"]

    async def test_writing_to_a_closed_peer_causes_a_reset(self, simulation: Simulation):
        """A full round trip later."""
        mine, theirs, _ = await connected(simulation)
        theirs.transport.close()
        begin = simulation.now
        mine.transport.write(b"hello")
        await simulation.until(lambda: mine.lost_at is not None)
        assert mine.callbacks == ["made", "eof", "lost"]  # the end came first
        assert mine.lost_at == pytest.approx(begin + 0.05)

    async def test_closing_with_something_unread_resets_the_connection(self, simulation: Simulation):
        """As a kernel does: the peer learns that not everything was read."""
        mine, theirs, _ = await connected(simulation)
        theirs.transport.pause_reading()
        mine.transport.write(b"unread")
        await asyncio.sleep(1)
        theirs.transport.close()
        await simulation.until(lambda: mine.lost_at is not None)
        assert mine.callbacks == ["made", "ConnectionResetError"]

    async def test_a_reset_from_between_breaks_both_sides(self, simulation: Simulation):
        mine, theirs, _ = await connected(simulation)
        simulation.network.reset("us", "eu")
        await asyncio.sleep(0)
        await asyncio.sleep(0.001)
        assert mine.callbacks == theirs.callbacks == ["made", "ConnectionResetError"]


class TestSlowReader:
    async def test_a_reader_that_pauses_stops_the_writer(self, simulation: Simulation):
        """The window fills, then the buffer, then the program is asked to pause; and back again, with nothing lost."""
        mine, theirs, _ = await connected(simulation)
        theirs.transport.pause_reading()
        assert not theirs.transport.is_reading()
        for _ in range(40):
            mine.transport.write(bytes(10_000))
            await asyncio.sleep(0.1)
        assert mine.callbacks == ["made", "pause"]
        assert mine.transport.get_write_buffer_size() == 400_000 - EXACT.receive_buffer_bytes
        assert theirs.received == b""
        theirs.transport.resume_reading()
        await simulation.until(lambda: len(theirs.received) == 400_000)
        assert mine.callbacks == ["made", "pause", "resume"]
        assert mine.transport.get_write_buffer_size() == 0

    async def test_the_limits_of_the_buffer_can_be_set(self, simulation: Simulation):
        mine, theirs, _ = await connected(simulation)
        theirs.transport.pause_reading()
        mine.transport.set_write_buffer_limits(high=0)
        assert mine.transport.get_write_buffer_limits() == (0, 0)
        mine.transport.write(bytes(EXACT.receive_buffer_bytes))
        assert mine.callbacks == ["made"]
        mine.transport.write(b"1")
        assert mine.callbacks == ["made", "pause"]
        with pytest.raises(ValueError, match="must be >="):
            mine.transport.set_write_buffer_limits(high=1, low=2)

    async def test_a_paused_reader_detects_a_reset_when_it_writes_or_resumes(self, simulation: Simulation):
        """A socket that is not polled reports nothing."""

        async def connected_again(simulation: Simulation) -> tuple[Peer, Peer]:
            server = Server(simulation.host("eu"), 6651)
            await simulation.host("eu").ask(server.listen())
            mine = await dial(simulation, "us", "eu", 6651)
            await simulation.until(lambda: bool(server.accepted))
            return mine, server.accepted[0]

        ends = [await connected(simulation), await connected_again(simulation)]
        for mine, theirs in ((ends[0][0], ends[0][1]), ends[1]):
            mine.transport.pause_reading()
            theirs.transport.pause_reading()
            mine.transport.write(b"unread")
            await asyncio.sleep(0.2)
            theirs.transport.close()
            await asyncio.sleep(0.2)
            assert mine.callbacks == ["made"]
        ends[0][0].transport.write(b"x")
        ends[1][0].transport.resume_reading()
        await asyncio.sleep(0.01)
        for mine, *_ in ends:
            assert mine.callbacks == ["made", "ConnectionResetError"]


class TestHold:
    async def test_what_is_held_is_delivered_in_order_when_the_link_heals(self, simulation: Simulation):
        """However long it takes; the other direction is open."""
        mine, theirs, _ = await connected(simulation)
        simulation.network.hold("us", "eu", one_way=True)
        for number in range(10):
            mine.transport.write(b"%d" % number)
            theirs.transport.write(b"%d" % number)
            await asyncio.sleep(100)
        assert theirs.received == b""
        assert mine.received == b"0123456789"
        simulation.network.heal("us", "eu")
        mine.transport.write(b"!")
        await simulation.until(lambda: theirs.received == b"0123456789!")
        assert mine.callbacks == theirs.callbacks == ["made"]

    async def test_connection_attempts_wait_too(self, simulation: Simulation):
        await connected(simulation)
        simulation.network.hold("eu", "us", one_way=True)
        dialling = asyncio.ensure_future(dial(simulation, "us", "eu"))
        await asyncio.sleep(500)
        assert not dialling.done()
        simulation.network.heal()
        await dialling

    async def test_a_writer_is_stopped_by_a_held_link(self, simulation: Simulation):
        """The window is full, and stays so also when only acknowledgements are held."""
        mine, theirs, _ = await connected(simulation)
        simulation.network.hold("eu", "us", one_way=True)
        mine.transport.write(bytes(1_000_000))
        await asyncio.sleep(100)
        assert len(theirs.received) == EXACT.receive_buffer_bytes
        simulation.network.heal()
        await simulation.until(lambda: len(theirs.received) == 1_000_000)
        assert mine.callbacks == ["made", "pause", "resume"]


class TestCut:
    async def test_a_connection_survives_a_short_cut(self, simulation: Simulation):
        """Lost bytes are sent again, some time after the link heals, in order."""
        mine, theirs, _ = await connected(simulation)
        simulation.network.cut("us", "eu")
        mine.transport.write(b"1")
        await asyncio.sleep(3)
        mine.transport.write(b"2")
        await asyncio.sleep(3)
        simulation.network.heal()
        mine.transport.write(b"3")
        await asyncio.sleep(0.06)
        assert theirs.received == b""
        await simulation.until(lambda: theirs.received == b"123", within_seconds=6)
        assert mine.callbacks == theirs.callbacks == ["made"]

    async def test_a_long_cut_breaks_only_connections_that_write_after_the_time_out(
        self, simulation: Simulation
    ):
        """Half open: the silent side knows nothing, until it writes and gets a reset."""
        mine, theirs, _ = await connected(simulation)
        begin = simulation.now
        simulation.network.cut("us", "eu")
        mine.transport.write(b"1")
        await asyncio.sleep(1000)
        assert mine.callbacks == ["made", "TimeoutError"]
        assert mine.lost_at == pytest.approx(begin + 20, abs=0.1)
        assert theirs.callbacks == ["made"]
        simulation.network.heal()
        await asyncio.sleep(1000)
        assert theirs.callbacks == ["made"]
        begin = simulation.now
        theirs.transport.write(b"anybody?")
        await asyncio.sleep(1)
        assert theirs.callbacks == ["made", "ConnectionResetError"]
        assert theirs.lost_at == pytest.approx(begin + 0.1)

    async def test_an_idle_connection_never_notices_a_cut(self, simulation: Simulation):
        """Nothing is in flight that could be lost."""
        mine, theirs, _ = await connected(simulation)
        simulation.network.cut("us", "eu")
        await asyncio.sleep(1000)
        simulation.network.heal()
        mine.transport.write(b"hello")
        await simulation.until(lambda: theirs.received == b"hello")

    async def test_a_link_cut_one_way_lets_the_other_way_pass_until_the_sender_gives_up(
        self, simulation: Simulation
    ):
        mine, theirs, _ = await connected(simulation)
        simulation.network.cut("us", "eu", one_way=True)
        begin = simulation.now
        mine.transport.write(b"lost")
        theirs.transport.write(b"arrives")
        await asyncio.sleep(100)
        assert mine.received == b"arrives"
        assert theirs.received == b""
        assert mine.callbacks == theirs.callbacks == ["made", "TimeoutError"]
        assert theirs.lost_at == pytest.approx(begin + 20, abs=0.1)

    async def test_acknowledgements_that_come_back_in_time_save_the_connection(self, simulation: Simulation):
        mine, theirs, _ = await connected(simulation)
        simulation.network.cut("eu", "us", one_way=True)
        mine.transport.write(bytes(400_000))
        await asyncio.sleep(10)
        assert len(theirs.received) == EXACT.receive_buffer_bytes
        simulation.network.heal()
        await simulation.until(lambda: len(theirs.received) == 400_000)
        await asyncio.sleep(100)
        assert mine.callbacks == ["made", "pause", "resume"]

    async def test_connection_attempts_over_a_cut_link_time_out(self, simulation: Simulation):
        """Whichever direction is cut; a server that only receives the request never accepts."""
        _, _, server = await connected(simulation)
        for source, target in (("us", "eu"), ("eu", "us")):
            simulation.network.cut(source, target, one_way=True)
            begin = simulation.now
            with pytest.raises(TimeoutError):
                await dial(simulation, "us", "eu")
            assert simulation.now == pytest.approx(begin + 5, abs=0.1)
            simulation.network.heal()
            await asyncio.sleep(30)
        assert len(server.accepted) == 1
        assert len(simulation.host("eu").network.endpoints) == 1

    async def test_a_connection_attempt_succeeds_if_the_link_heals_in_time(self, simulation: Simulation):
        await connected(simulation)
        simulation.network.cut("us", "eu")
        dialling = asyncio.ensure_future(dial(simulation, "us", "eu"))
        await asyncio.sleep(2)
        simulation.network.heal()
        await dialling


class TestDeath:
    def test_peers_of_a_killed_program_get_an_end_or_a_reset(self):
        """An end or a reset, drawn from the seed; the bytes before it are in order and a prefix."""
        endings: set[str] = set()
        lengths: set[int] = set()

        async def scenario(simulation: Simulation) -> None:
            mine, theirs, _ = await connected(simulation)
            mine.transport.write(b"0123456789")
            simulation.host("us").kill()
            begin = simulation.now
            await simulation.until(lambda: theirs.lost_at is not None)
            assert theirs.lost_at == pytest.approx(begin + 0.05)
            assert b"0123456789".startswith(theirs.received)
            endings.add(theirs.callbacks[-1])
            lengths.add(len(theirs.received))
            assert mine.callbacks == ["made"]
            with pytest.raises(ConnectionRefusedError):
                await dial(simulation, "eu", "us")

        for seed in range(80):
            play(scenario, seed=seed)
        assert endings == {"lost", "ConnectionResetError"}
        assert lengths == set(range(11))

    async def test_behind_a_cut_a_death_is_detected_by_the_next_write(self, simulation: Simulation):
        """The reset is lost; the next bytes after healing get another one."""
        mine, theirs, _ = await connected(simulation)
        mine.transport.pause_reading()
        theirs.transport.write(b"unread")
        await asyncio.sleep(1)
        simulation.network.cut("us", "eu")
        simulation.host("us").kill()  # with something unread: a reset
        await asyncio.sleep(100)
        simulation.network.heal()
        await asyncio.sleep(100)
        assert theirs.callbacks == ["made"]
        theirs.transport.write(b"anybody?")
        await asyncio.sleep(1)
        assert theirs.callbacks == ["made", "ConnectionResetError"]

    async def test_a_machine_without_power_sends_nothing(self, simulation: Simulation):
        _, theirs, _ = await connected(simulation)
        simulation.host("us").power_off()
        begin = simulation.now
        await asyncio.sleep(10)
        theirs.transport.write(b"anybody?")
        with pytest.raises(TimeoutError):
            await dial(simulation, "eu", "us")
        assert simulation.now == pytest.approx(begin + 15, abs=0.1)
        assert theirs.callbacks == ["made"]
        await asyncio.sleep(30)
        assert theirs.callbacks == ["made", "TimeoutError"]

    async def test_a_machine_that_comes_back_knows_no_old_connections(self, simulation: Simulation):
        _, theirs, _ = await connected(simulation)
        simulation.host("us").power_off()
        theirs.transport.write(b"anybody?")
        await asyncio.sleep(5)
        simulation.host("us").start(asyncio.sleep(0))
        await asyncio.sleep(10)
        assert theirs.callbacks == ["made", "ConnectionResetError"]

    async def test_the_kernel_of_a_paused_program_continues(self, simulation: Simulation):
        """It accepts bytes until the window is full, and connections; the program sees all of it when it is resumed."""
        mine, theirs, server = await connected(simulation)
        simulation.host("eu").pause()
        mine.transport.write(bytes(300_000))
        second = await dial(simulation, "us", "eu")
        second.transport.write(b"hello")
        await asyncio.sleep(100)
        assert theirs.received == b""
        assert len(server.accepted) == 1
        assert mine.callbacks == ["made"]
        assert mine.transport.get_write_buffer_size() == 300_000 - EXACT.receive_buffer_bytes
        simulation.host("eu").resume()
        await simulation.until(lambda: len(theirs.received) == 300_000)
        assert server.accepted[1].received == b"hello"

    async def test_writes_of_a_dead_program_reach_no_peer(self, simulation: Simulation):
        """A program dies in the middle of its iteration."""
        mine, theirs, _ = await connected(simulation)
        simulation.host("us").power_off()
        mine.transport.write(b"ghost")
        mine.transport.close()
        await asyncio.sleep(10)
        assert theirs.callbacks == ["made"]
        assert theirs.received == b""


class TestAsyncioOnTop:
    async def test_streams_work(self, simulation: Simulation):
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            async for line in reader:
                writer.write(line.upper())
                await writer.drain()
            writer.close()
            await writer.wait_closed()

        async def serve() -> None:
            async with await asyncio.start_server(answer, "0.0.0.0", 80) as server:
                assert server.is_serving()
                assert server.sockets[0].getsockname() == ("eu", 80)
                await server.serve_forever()

        async def ask() -> bytes:
            reader, writer = await asyncio.open_connection("eu", 80)
            writer.write(b"hello\n" * 10_000)
            await writer.drain()
            writer.write_eof()
            answer = await reader.read()
            writer.close()
            await writer.wait_closed()
            return answer

        simulation.host("eu").start(serve())
        assert await simulation.host("us").ask(ask()) == b"HELLO\n" * 10_000

    async def test_the_network_of_real_sockets_works_on_the_simulated_loop(self, simulation: Simulation):
        """It opens connections through the loop, and the loop is simulated."""

        async def listen(server: Server) -> int:
            return (await SocketNetwork().listen(server._accept, "", 0)).port

        server = Server(simulation.host("eu"))
        port = await simulation.host("eu").ask(listen(server))
        await simulation.host("us").ask(SocketNetwork().connect(Peer, "eu", port))
