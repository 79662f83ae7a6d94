"""Recording on the wire: what clients ask of regions and are told, of clients that are not changed at all.

A tap stands in front of each region's port and passes on every byte. It knows what the wire knows: what was sent and
confirmed, what a region gave to a client, what the client acknowledged. What the application did with a message, and
whether it has come out of the client's queue yet, it cannot know.
"""
