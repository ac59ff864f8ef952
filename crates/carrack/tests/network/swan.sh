# strongSwan's IKE daemon in the namespace it is started in, with files and sockets of its own: swan.sh DIRECTORY ROLE SERVER.
# ESP is made by the daemon itself (kernel-libipsec): not every kernel has it.
set -eu
dir=$1 role=$2 server=$3
# An own /run for the daemon's process id, with the directory still in its place.
mount --bind "$dir" /mnt
mount -t tmpfs swan /run
mkdir -p "$dir"
mount --bind /mnt "$dir"
mkdir -p "$dir/$role.d"
cat >"$dir/$role.d/strongswan.conf" <<CONF
charon {
    load = random nonce openssl pem pkcs1 pkcs8 pubkey hmac sha1 sha2 aes gcm kdf kernel-libipsec kernel-netlink socket-default vici
    plugins {
        vici {
            socket = unix://$dir/$role.vici
        }
    }
    filelog {
        stderr {
            default = 1
        }
    }
}
swanctl {
    load = random nonce openssl pem pkcs1 pkcs8 pubkey
}
CONF
if [ "$role" = server ]; then
    ip address replace 10.99.0.1/32 dev lo
    cat >"$dir/$role.d/swanctl.conf" <<CONF
connections {
    net {
        version = 2
        local_addrs = $server
        pools = net
        local {
            auth = psk
            id = server
        }
        remote {
            auth = psk
        }
        children {
            net {
                local_ts = 10.99.0.1/32
            }
        }
    }
}
pools {
    net {
        addrs = 10.98.0.0/24
    }
}
secrets {
    ike-all {
        secret = "correct horse battery staple"
    }
}
CONF
else
    cat >"$dir/$role.d/swanctl.conf" <<CONF
connections {
    net {
        version = 2
        remote_addrs = $server
        vips = 0.0.0.0
        local {
            auth = psk
            id = $role
        }
        remote {
            auth = psk
            id = server
        }
        children {
            net {
                remote_ts = 10.99.0.1/32
            }
        }
    }
}
secrets {
    ike-all {
        secret = "correct horse battery staple"
    }
}
CONF
fi
STRONGSWAN_CONF=$dir/$role.d/strongswan.conf /usr/lib/ipsec/charon &
daemon=$!
trap 'kill $daemon' TERM INT
for _ in $(seq 100); do
    STRONGSWAN_CONF=$dir/$role.d/strongswan.conf swanctl --load-all --noprompt \
        --file "$dir/$role.d/swanctl.conf" --uri "unix://$dir/$role.vici" && break
    sleep 0.1
done
wait $daemon || wait $daemon || true
