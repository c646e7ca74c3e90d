"""The data plane on a Ray cluster: Ray Serve routes, scales and restarts; what a request means stays ours.

    proxies     Ray Serve's HTTP front, one per node
    Ingress     reads a request within limits, checks its token, and finds its model's name in its path
    Engine      one data plane per replica, which loads models as they are asked for and drops the least recently used

Both deployments are applications of their own, so that stopping empties the ingress before an engine goes.
"""
