#!/bin/sh
# Creates what pve-autoscaler needs in Proxmox VE: a resource pool, roles, a user, a token and access rights.
# Run it as root on a Proxmox VE host. It can be run again: existing objects and an existing token are kept,
# and existing roles only gain the privileges that they lack. So `--hardware`, `--mapping`, `--seed` and
# `--power` can be added later, and need not be repeated.
#
#   proxmox-setup.sh --template VMID --storage NAME --bridge NAME [--pool NAME] [--user NAME@pve] [--token NAME]
#                    [--token-file FILE] [--hardware] [--mapping NAME] [--seed STORAGE] [--power HOST] [--dry-run]
#
# --template, --storage, --bridge, --mapping, --seed and --power may be given several times. --bridge and --storage are also needed
# for a template's own bridges and storages: Proxmox VE requires rights on them for cloning. --hardware lets
# the daemon set the machines' hardware. --mapping NAME (or pci/NAME) does the same, and also lets the daemon
# give machines a PCI device of that resource mapping. `--mapping usb/NAME`, `dir/NAME`, `cpu/NAME` or `hwrng`
# only lets the daemon use a mapping of that kind, for example if a template uses it. --seed lets the daemon
# put cloud-init seeds onto that storage. --power lets the daemon switch that host off and on. For this, the
# daemon also gets the right to see every guest. --dry-run prints the commands without running them.
set -eu

pool=kubernetes user=autoscaler@pve token=agent
file=/etc/pve-autoscaler/credentials/pve-token
templates='' storages='' bridges='' mappings='' seeds='' powers='' hardware='' drives='' dry=no

fail() { echo "proxmox-setup.sh: $*" >&2; exit 2; }
name() { case $2 in '' | -* | *[!A-Za-z0-9_.@/-]*) fail "$1: \`$2\` is not a name" ;; esac; }

while [ $# -gt 0 ]; do
    case $1 in
        --dry-run) dry=yes; shift; continue ;;
        --hardware) hardware=' VM.Config.HWType'; shift; continue ;;
        -h | --help) sed -n '2,/^set -eu/{/^#/s/^# \{0,1\}//p}' "$0"; exit 0 ;;
        --template | --storage | --bridge | --mapping | --seed | --power | --pool | --user | --token | --token-file) ;;
        *) fail "unknown option \`$1\`; --help lists the options" ;;
    esac
    [ $# -ge 2 ] || fail "$1 needs a value"
    name "$1" "$2"
    case $1 in
        --template) templates="$templates $2" ;;
        --storage) storages="$storages $2" ;;
        --bridge) bridges="$bridges $2" ;;
        --mapping)
            case $2 in
                # The mapping of the host's hardware random number generator has its own path.
                hwrng) mappings="$mappings $2" ;;
                pci/*) mappings="$mappings $2"; hardware=' VM.Config.HWType' ;;
                */*) mappings="$mappings $2" ;;
                *) mappings="$mappings pci/$2"; hardware=' VM.Config.HWType' ;;
            esac
            ;;
        # The seed replaces the template's own cloud-init drive.
        --seed) seeds="$seeds $2"; drives=' VM.Config.CDROM VM.Config.Cloudinit' ;;
        --power) powers="$powers $2" ;;
        --pool) pool=$2 ;;
        --user) user=$2 ;;
        --token) token=$2 ;;
        --token-file) file=$2 ;;
    esac
    shift 2
done
[ -n "$templates" ] && [ -n "$storages" ] && [ -n "$bridges" ] || fail "--template, --storage and --bridge are needed"

# Runs a command, or prints it in a form that can be pasted into a shell.
run() {
    if [ $dry = no ]; then
        "$@"
        return
    fi
    line=
    for word in "$@"; do
        case $word in *[!A-Za-z0-9_.@/-]*) word="'$word'" ;; esac
        line="$line $word"
    done
    echo "${line# }"
}
# Checks whether a Proxmox VE list has an entry with this value. If pvesh is available, this is also checked
# in a dry run.
has() {
    command -v pvesh >/dev/null 2>&1 || return 1
    pvesh get "$1" --output-format json 2>/dev/null | tr '{,}' '\n\n\n' | grep -Fqx "\"$2\":\"$3\""
}

if [ $dry = no ]; then
    [ "$(id -u)" = 0 ] || fail "only root can do this"
    command -v pveum >/dev/null 2>&1 || fail "this is not a Proxmox VE host: pveum was not found"
fi

# Before Proxmox VE 9, the privilege to run commands in guests has a different name.
guests=VM.GuestAgent.Unrestricted
if command -v pveversion >/dev/null 2>&1; then
    case $(pveversion) in pve-manager/[5-8].*) guests=VM.Monitor ;; esac
fi

role() {
    if has /access/roles roleid "$1"; then
        # An existing role may have additional privileges that some settings need, so no privilege is removed.
        run pveum role modify "$1" --append 1 --privs "$2"
    else
        run pveum role add "$1" --privs "$2"
    fi
}
machines="Pool.Audit VM.Allocate VM.Audit VM.PowerMgmt VM.Config.CPU VM.Config.Memory VM.Config.Disk VM.Config.Network VM.Config.Options"
role AutoscalerMachines "$machines $guests$hardware$drives"
role AutoscalerTemplates "VM.Clone VM.Audit"
role AutoscalerStorage "Datastore.AllocateSpace Datastore.Audit"
role AutoscalerNetwork "SDN.Use"
role AutoscalerHosts "Sys.Audit"
[ -z "$mappings" ] || role AutoscalerMappings "Mapping.Use"
[ -z "$seeds" ] || role AutoscalerSeeds "Datastore.Allocate Datastore.AllocateTemplate Datastore.Audit"
if [ -n "$powers" ]; then
    role AutoscalerPower "Sys.PowerMgmt"
    role AutoscalerGuests "VM.Audit"
fi

has /pools poolid "$pool" || run pveum pool add "$pool" --comment "machines of pve-autoscaler"
has /access/users userid "$user" || run pveum user add "$user" --comment "pve-autoscaler"

# Proxmox VE shows the secret only once, so it is written directly to its file, which other users can never
# read.
if has "/access/users/$user/token" tokenid "$token"; then
    echo "The token $user!$token exists and is kept; its secret should be in $file." >&2
elif [ $dry = yes ]; then
    echo "pveum user token add $user $token --privsep 1 --output-format json    # its value goes to $file"
else
    (
        # The service's user must be able to enter the parent folder, but only root may read the credentials
        # folder. Existing folders are not changed.
        umask 022
        mkdir -p "$(dirname "$(dirname "$file")")"
        umask 077
        mkdir -p "$(dirname "$file")"
        pveum user token add "$user" "$token" --privsep 1 --output-format json |
            tr '{,}' '\n\n\n' | sed -n 's/^"value":"\(.*\)"$/\1/p' >"$file"
    )
    [ -s "$file" ] || fail "no secret was returned; remove the token ($user!$token) and run this again"
fi

# A token has only the rights that are granted both to it and to its user.
grant() { run pveum acl modify "$1" --users "$user" --tokens "$user!$token" --roles "$2" --propagate "$3"; }
grant "/pool/$pool" AutoscalerMachines 1
for template in $templates; do grant "/vms/$template" AutoscalerTemplates 0; done
for storage in $storages; do grant "/storage/$storage" AutoscalerStorage 0; done
for bridge in $bridges; do grant "/sdn/zones/localnetwork/$bridge" AutoscalerNetwork 1; done
for mapping in $mappings; do grant "/mapping/$mapping" AutoscalerMappings 0; done
for seed in $seeds; do grant "/storage/$seed" AutoscalerSeeds 0; done
for host in $powers; do grant "/nodes/$host" AutoscalerPower 0; done
[ -z "$powers" ] || grant /vms AutoscalerGuests 1
# Lets the daemon see the hosts, their load, and whether the cluster is quorate.
grant / AutoscalerHosts 1

cat >&2 <<END
For /etc/pve-autoscaler/config.toml:

  [proxmox]
  endpoints = ["https://127.0.0.1:8006"]
  token_id = "$user!$token"
  token_credential = "pve-token"
  ca_credential = "pve-root-ca"
  resource_pool = "$pool"

Then \`pve-autoscaler check\` shows what is missing.
END
