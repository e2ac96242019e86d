# The discovery controller names the subsystem, and where it is.
nvme discover -t tcp -a "$ADDR" -s "$PORT" -o json >/tmp/found
same "one subsystem besides discovery itself" 1 "$(grep -c "\"subnqn\" *: *\"$NQN\"" /tmp/found)"
grep -q "\"trsvcid\" *: *\"$PORT\"" /tmp/found || { cat /tmp/found; fail "no record has port $PORT"; }
same "over TCP" tcp "$(json /tmp/found trtype)"
