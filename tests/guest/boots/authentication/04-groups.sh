# Each hash function and each group, both ways.
for server in $(echo "$MATRIX" | tr , ' '); do
    PORT=${server%%:*}
    connect --hostnqn "$HOSTNQN" --hostid "$HOSTID" --dhchap-secret "$KEY" --dhchap-ctrl-secret "$SERVER_KEY" -i 1
    expect "${server#*:}" dd if="$(volume 1)" of=/dev/null bs=64k count=4 iflag=direct
    disconnect
done
