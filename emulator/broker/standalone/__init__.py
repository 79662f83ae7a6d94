"""One region that starts as Pulsar's standalone broker does: from `standalone.conf` and `PULSAR_PREFIX_` variables.

Images and Testcontainers modules made for Pulsar run these commands, which the image of compose/testcontainers has:

    bin/apply-config-from-env.py conf/standalone.conf       `config_file`: write the variables into the file
    bin/pulsar standalone --no-functions-worker -nss        `program`: read the file and serve the region
    bin/pulsar tokens create-secret-key --output FILE       `token_commands`: create keys and tokens
    bin/pulsar-admin topics list public/default             `admin_program`: send a request to that region

`settings` has the settings that a region applies, those that it cannot change, and the resulting `RegionConfig`;
`security_settings` those of TLS, authentication and authorization.
"""
