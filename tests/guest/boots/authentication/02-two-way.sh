# The server proves itself, too.
connect --hostnqn "$HOSTNQN" --hostid "$HOSTID" --dhchap-secret "$KEY" --dhchap-ctrl-secret "$SERVER_KEY" -i 2
expect "the volume can be read" dd if="$(volume 1)" of=/dev/null bs=64k count=16 iflag=direct
disconnect
