# Each hash function with each group, one way and both ways.
for server in $(echo "$MATRIX" | tr , ' '); do
    PORT=${server%%:*}
    for ways in "one way" "both ways"; do
        prove=
        [ "$ways" = "one way" ] || prove="--dhchap-ctrl-secret $SERVER_KEY"
        connect --hostnqn "$HOSTNQN" --hostid "$HOSTID" --dhchap-secret "$KEY" $prove -i 1
        expect "${server#*:} $ways" dd if="$(volume 1)" of=/dev/null bs=64k count=1 iflag=direct
        disconnect
    done
done
