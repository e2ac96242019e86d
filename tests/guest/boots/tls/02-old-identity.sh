# The first version of identities names no key: there is one identity, and Debian 13's tools derive its key otherwise.
insert_key 0 "$OLD_NQN" "$OLD_KEY"
connect --hostnqn "$OLD_NQN" --hostid "$OLD_ID" --tls -i 1
disk=$(volume 1)
expect "it reads" dd if="$disk" of=/dev/null bs=64k count=16 iflag=direct
disconnect
