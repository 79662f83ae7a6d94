"""Recording on the wire: requests of unmodified clients and the responses of regions.

A tap listens in front of each region's port and forwards every byte. It knows what the wire knows: what was sent and
confirmed, what a region gave to a client, what the client acknowledged. What the application did with a message, and
whether it has come out of the client's queue yet, it cannot know.
"""
