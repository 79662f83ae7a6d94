"""Record the requests of unmodified clients and the responses of regions on the wire.

A tap listens in front of each region's port and forwards all bytes. It records commands: publishes and receipts,
deliveries to a client, and acknowledgements. A tap cannot record whether the application has received a message from
the client's queue, and what it did with the message.
"""
