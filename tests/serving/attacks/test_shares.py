"""One client that holds all the memory there is for bodies, by sending halves of them: others are answered meanwhile."""

import contextlib
import http.client
import socket

MIB = 1 << 20


def test_half_bodies_of_one_client_leave_room_for_others(start, models, make_photo):
    server = start(models, max_inflight_bytes=32 * MIB, max_body_bytes=8 * MIB)
    host, port = server.http.split(":")
    head = f"POST /v1/classify/tiny HTTP/1.1\r\nHost: localhost\r\nContent-Length: {8 * MIB}\r\n\r\n".encode()
    with contextlib.ExitStack() as stack:
        for _ in range(16):
            connection = stack.enter_context(socket.create_connection((host, int(port)), timeout=60))
            with contextlib.suppress(ConnectionError):  # rejected ones are closed
                connection.sendall(head + bytes(4 * MIB))
        answered = []
        for _ in range(20):
            other = http.client.HTTPConnection(host, int(port), timeout=20, source_address=("127.0.0.2", 0))
            other.request("POST", "/v1/classify/tiny", make_photo(0))
            answered.append(other.getresponse().status)
            other.close()
        assert set(answered) == {200}
