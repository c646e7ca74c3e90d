"""Exit status 0 when the server in this container is ready, 1 when not: a health check that needs no curl.

Asks HEALTH_URL, by default the embedded server's port. A server's certificate is not checked, since it is for the name that
clients use, and this asks over loopback.
"""

import os
import ssl
import sys
import urllib.error
import urllib.request

SECONDS = 4.0


def main() -> int:
    """Ask once; what is wrong goes to stderr, which `docker inspect` shows."""
    url = os.environ.get("HEALTH_URL") or "http://127.0.0.1:8000/v2/health/ready"
    if not url.startswith(("http://", "https://")):
        sys.stderr.write(f"HEALTH_URL must be an http:// or https:// address, got {url!r}\n")
        return 1
    unchecked = ssl._create_unverified_context()  # noqa: S323
    # A proxy of the environment is not asked for what runs beside this.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=unchecked))
    try:
        with opener.open(url, timeout=SECONDS) as answer:
            ready = answer.status == 200
    except (OSError, ValueError) as error:  # HTTPError and URLError are OSErrors
        sys.stderr.write(f"{url}: {error}\n")
        return 1
    return 0 if ready else 1


if __name__ == "__main__":
    raise SystemExit(main())
