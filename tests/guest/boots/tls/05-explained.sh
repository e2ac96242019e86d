# The commands that `diskside key explain` prints, as they are.
mkdir -p "$(dirname "$EXPLAINED_FILE")"
host key-file | base64 -d >"$EXPLAINED_FILE"
host explain | base64 -d >/tmp/explained
# The case before has started it; there is no systemd here.
systemctl() {
    same "tlshd is to be started" "start tlshd" "$*"
}
sed 's/^/    /' /tmp/explained
. /tmp/explained >/tmp/said 2>&1 || {
    cat /tmp/said
    fail "the commands that are printed do not connect"
}
expect "a volume is there" dd if="$(volume 1)" of=/dev/null bs=64k count=16 iflag=direct
disconnect
