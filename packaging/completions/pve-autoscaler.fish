# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_pve_autoscaler_global_optspecs
    string join \n cluster= h/help V/version
end

function __fish_pve_autoscaler_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_pve_autoscaler_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_pve_autoscaler_using_subcommand
    set -l cmd (__fish_pve_autoscaler_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c pve-autoscaler -n "__fish_pve_autoscaler_needs_command" -l cluster -d 'The Kubernetes cluster, if this host serves several: selects its configuration in /etc/pve-autoscaler/clusters/NAME and its daemon\'s socket' -r
complete -c pve-autoscaler -n "__fish_pve_autoscaler_needs_command" -s h -l help -d 'Print help'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_needs_command" -s V -l version -d 'Print version'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_needs_command" -f -a "setup" -d 'Set up Proxmox VE and Kubernetes for the daemon, and write a first configuration'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_needs_command" -f -a "migrate" -d 'Convert another autoscaler\'s settings into a configuration'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_needs_command" -f -a "run" -d 'Run the daemon'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_needs_command" -f -a "status" -d 'Show what the running daemon sees, is doing and has decided'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_needs_command" -f -a "pause" -d 'Pause the daemon: it starts nothing new until `resume`'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_needs_command" -f -a "resume" -d 'Resume after `pause`'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_needs_command" -f -a "retry" -d 'End the back-off of hosts and pools after failures'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_needs_command" -f -a "history" -d 'Show recent decisions and their outcomes'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_needs_command" -f -a "retire" -d 'Drain a node and destroy its machine'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_needs_command" -f -a "pin" -d 'Keep a node, even if it is unneeded'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_needs_command" -f -a "unpin" -d 'Undo `pin`: allow the node to be removed'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_needs_command" -f -a "adopt" -d 'Turn an existing worker into a machine of a pool'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_needs_command" -f -a "orphans" -d 'Show VMs of this cluster that have no record, and the evidence that they are left over'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_needs_command" -f -a "check" -d 'Check the configuration and both clusters, and report what is wrong'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_needs_command" -f -a "template" -d 'Create the templates that the configuration describes, or replace those whose settings have changed'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_needs_command" -f -a "plan" -d 'Show what the daemon would decide now, and why, without changing anything'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_needs_command" -f -a "snapshot" -d 'Write a snapshot for `plan` to standard output, from the live cluster or from a recording'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_needs_command" -f -a "simulate" -d 'Show what one or more configurations would have done in recorded rounds'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_needs_command" -f -a "explain" -d 'Show which nodes could take a pod, or why a node is kept'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_needs_command" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand setup" -l proxmox -d 'The address of any host of the Proxmox VE cluster' -r
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand setup" -l proxmox-ca -d 'The certificate authority of Proxmox VE' -r -F
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand setup" -l admin-token-id -d 'The ID of the administrator\'s token' -r
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand setup" -l admin-token-file -d 'The file with the secret of the administrator\'s token (default: no token; setup runs `pvesh` as root)' -r -F
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand setup" -l pvesh -d 'The `pvesh` program, which needs no token' -r -F
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand setup" -l admin-kubeconfig -d 'The administrator\'s kubeconfig' -r -F
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand setup" -l folder -d 'The folder for the configuration and credentials' -r -F
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand setup" -l user -d 'The user to create in Proxmox VE' -r
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand setup" -l token -d 'The name of that user\'s token' -r
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand setup" -l resource-pool -d 'The resource pool for the machines' -r
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand setup" -l template -d 'The workers\' template, by VMID or name' -r
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand setup" -l addresses -d 'The workers\' addresses, FIRST-LAST, free and not assigned by DHCP' -r
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand setup" -l prefix -d 'The prefix length of the workers\' network (default: 24, or 64 with IPv6)' -r
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand setup" -l gateway -d 'The workers\' gateway' -r
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand setup" -l dns -d 'The workers\' name server (default: the gateway)' -r
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand setup" -l vmids -d 'The workers\' VMIDs, FIRST-LAST (default: a free range)' -r
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand setup" -l bridge -d 'The workers\' bridge (default: the template\'s)' -r
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand setup" -l max -d 'The maximum number of workers' -r
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand setup" -l cluster -d 'The Kubernetes cluster, if this host serves several: selects its configuration in /etc/pve-autoscaler/clusters/NAME and its daemon\'s socket' -r
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand setup" -l dry-run -d 'Show what would be done without doing it'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand setup" -s h -l help -d 'Print help'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand migrate" -l output -d 'Write the configuration to this file, which must not exist yet (default: standard output)' -r -F
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand migrate" -l cluster -d 'The Kubernetes cluster, if this host serves several: selects its configuration in /etc/pve-autoscaler/clusters/NAME and its daemon\'s socket' -r
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand migrate" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand run" -l config -d 'The configuration' -r -F
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand run" -l socket -d 'The socket on which to listen for `status` and other commands' -r -F
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand run" -l log-level -d 'Log level: error, warn, info, debug or trace, or directives such as `info,kube=debug`' -r
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand run" -l cluster -d 'The Kubernetes cluster, if this host serves several: selects its configuration in /etc/pve-autoscaler/clusters/NAME and its daemon\'s socket' -r
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand run" -s h -l help -d 'Print help'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand status" -l socket -d 'The socket of the daemon' -r -F
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand status" -l watch -d 'Refresh every SECONDS (default: 2) until Ctrl-C; without a terminal, print line by line' -r
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand status" -l output -d 'Output format' -r -f -a "text\t'For people'
json\t'For programs; the format is stable'"
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand status" -l cluster -d 'The Kubernetes cluster, if this host serves several: selects its configuration in /etc/pve-autoscaler/clusters/NAME and its daemon\'s socket' -r
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand status" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand pause" -l reason -d 'The reason, shown in `status` and the log' -r
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand pause" -l socket -d 'The socket of the daemon' -r -F
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand pause" -l cluster -d 'The Kubernetes cluster, if this host serves several: selects its configuration in /etc/pve-autoscaler/clusters/NAME and its daemon\'s socket' -r
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand pause" -s h -l help -d 'Print help'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand resume" -l socket -d 'The socket of the daemon' -r -F
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand resume" -l cluster -d 'The Kubernetes cluster, if this host serves several: selects its configuration in /etc/pve-autoscaler/clusters/NAME and its daemon\'s socket' -r
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand resume" -s h -l help -d 'Print help'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand retry" -l socket -d 'The socket of the daemon' -r -F
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand retry" -l cluster -d 'The Kubernetes cluster, if this host serves several: selects its configuration in /etc/pve-autoscaler/clusters/NAME and its daemon\'s socket' -r
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand retry" -s h -l help -d 'Print help'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand history" -l socket -d 'The socket of the daemon' -r -F
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand history" -l output -d 'Output format' -r -f -a "text\t'For people'
json\t'For programs; the format is stable'"
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand history" -l cluster -d 'The Kubernetes cluster, if this host serves several: selects its configuration in /etc/pve-autoscaler/clusters/NAME and its daemon\'s socket' -r
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand history" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand retire" -l socket -d 'The socket of the daemon' -r -F
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand retire" -l output -d 'Output format' -r -f -a "text\t'For people'
json\t'For programs; the format is stable'"
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand retire" -l reason -d 'The reason, shown in `status` and the log' -r
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand retire" -l cluster -d 'The Kubernetes cluster, if this host serves several: selects its configuration in /etc/pve-autoscaler/clusters/NAME and its daemon\'s socket' -r
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand retire" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand pin" -l socket -d 'The socket of the daemon' -r -F
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand pin" -l output -d 'Output format' -r -f -a "text\t'For people'
json\t'For programs; the format is stable'"
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand pin" -l reason -d 'The reason, shown in `history` and on the Node (annotation `pve-autoscaler/scale-down-disabled-reason`)' -r
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand pin" -l cluster -d 'The Kubernetes cluster, if this host serves several: selects its configuration in /etc/pve-autoscaler/clusters/NAME and its daemon\'s socket' -r
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand pin" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand unpin" -l socket -d 'The socket of the daemon' -r -F
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand unpin" -l output -d 'Output format' -r -f -a "text\t'For people'
json\t'For programs; the format is stable'"
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand unpin" -l cluster -d 'The Kubernetes cluster, if this host serves several: selects its configuration in /etc/pve-autoscaler/clusters/NAME and its daemon\'s socket' -r
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand unpin" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand adopt" -l pool -d 'The pool to adopt the node into' -r
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand adopt" -l config -d 'The configuration' -r -F
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand adopt" -l socket -d 'The socket of the daemon to notify' -r -F
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand adopt" -l output -d 'Output format' -r -f -a "text\t'For people'
json\t'For programs; the format is stable'"
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand adopt" -l cluster -d 'The Kubernetes cluster, if this host serves several: selects its configuration in /etc/pve-autoscaler/clusters/NAME and its daemon\'s socket' -r
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand adopt" -l yes -d 'Adopt the node, so that the daemon destroys its VM once the node is no longer needed'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand adopt" -l dry-run -d 'Show what would be written without writing it (the default without `--yes`)'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand adopt" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand orphans" -l socket -d 'The socket of the daemon' -r -F
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand orphans" -l output -d 'Output format' -r -f -a "text\t'For people'
json\t'For programs; the format is stable'"
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand orphans" -l cluster -d 'The Kubernetes cluster, if this host serves several: selects its configuration in /etc/pve-autoscaler/clusters/NAME and its daemon\'s socket' -r
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand orphans" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand check" -l config -d 'The configuration' -r -F
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand check" -l for -d 'The command that the configuration is for' -r -f -a "run\t'The daemon'
plan\t'`plan` and `explain`, which need fewer settings'"
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand check" -l output -d 'Output format' -r -f -a "text\t'For people'
json\t'For programs; the format is stable'"
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand check" -l cluster -d 'The Kubernetes cluster, if this host serves several: selects its configuration in /etc/pve-autoscaler/clusters/NAME and its daemon\'s socket' -r
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand check" -l offline -d 'Check only the configuration'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand check" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand template" -l config -d 'The configuration' -r -F
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand template" -l region -d 'Only templates of this region' -r
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand template" -l token-id -d 'A token that may create templates (default: the daemon\'s)' -r
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand template" -l token-file -d 'The file with that token\'s secret' -r -F
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand template" -l cluster -d 'The Kubernetes cluster, if this host serves several: selects its configuration in /etc/pve-autoscaler/clusters/NAME and its daemon\'s socket' -r
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand template" -l dry-run -d 'Show what would be done without doing it'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand template" -l force -d 'Replace the templates even if nothing has changed'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand template" -s h -l help -d 'Print help'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand plan" -l config -d 'The configuration' -r -F
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand plan" -l snapshot -d 'A file of Kubernetes objects as kubectl prints them, or `-` for standard input (default: the live cluster)' -r -F
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand plan" -l now -d 'The time of the decision, in RFC 3339 (default: the snapshot\'s time, else the current time)' -r
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand plan" -l output -d 'Output format' -r -f -a "text\t'For people'
json\t'For programs; the format is stable'"
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand plan" -l cluster -d 'The Kubernetes cluster, if this host serves several: selects its configuration in /etc/pve-autoscaler/clusters/NAME and its daemon\'s socket' -r
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand plan" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand snapshot" -l config -d 'The configuration' -r -F
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand snapshot" -l records -d 'Read this folder of recorded rounds (`[record] days`) instead of the live cluster' -r -F
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand snapshot" -l at -d 'Use the last recorded round at or before this time, in RFC 3339 (default: the last one)' -r
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand snapshot" -l cluster -d 'The Kubernetes cluster, if this host serves several: selects its configuration in /etc/pve-autoscaler/clusters/NAME and its daemon\'s socket' -r
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand snapshot" -s h -l help -d 'Print help'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand simulate" -l records -d 'A folder of recorded rounds (`[record] days`; default: the first configuration\'s folder)' -r -F
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand simulate" -l config -d 'A configuration; repeat the option to compare several' -r -F
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand simulate" -l scale -d 'Multiply the number of pods by this factor, e.g. `2.0` or `0.5`' -r
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand simulate" -l without-host -d 'Simulate without this host; repeat the option for several hosts' -r
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand simulate" -l picture -d 'Also write a chart of nodes and pending pods over time to this file (SVG)' -r -F
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand simulate" -l output -d 'Output format' -r -f -a "text\t'For people'
json\t'For programs; the format is stable'"
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand simulate" -l cluster -d 'The Kubernetes cluster, if this host serves several: selects its configuration in /etc/pve-autoscaler/clusters/NAME and its daemon\'s socket' -r
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand simulate" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand explain" -l config -d 'The configuration [default: /etc/pve-autoscaler/config.toml]; with `--snapshot` and a pod, pools are shown only if this option is given' -r -F
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand explain" -l snapshot -d 'A file of Kubernetes objects as kubectl prints them, or `-` for standard input (default: the live cluster)' -r -F
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand explain" -l now -d 'The time of the decision, in RFC 3339 (default: the snapshot\'s time, else the current time)' -r
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand explain" -l pod -d 'Explain this pod' -r
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand explain" -l node -d 'Explain this node' -r
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand explain" -l output -d 'Output format' -r -f -a "text\t'For people'
json\t'For programs; the format is stable'"
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand explain" -l cluster -d 'The Kubernetes cluster, if this host serves several: selects its configuration in /etc/pve-autoscaler/clusters/NAME and its daemon\'s socket' -r
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand explain" -l all-pods -d 'Explain every pod without a node'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand explain" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand help; and not __fish_seen_subcommand_from setup migrate run status pause resume retry history retire pin unpin adopt orphans check template plan snapshot simulate explain help" -f -a "setup" -d 'Set up Proxmox VE and Kubernetes for the daemon, and write a first configuration'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand help; and not __fish_seen_subcommand_from setup migrate run status pause resume retry history retire pin unpin adopt orphans check template plan snapshot simulate explain help" -f -a "migrate" -d 'Convert another autoscaler\'s settings into a configuration'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand help; and not __fish_seen_subcommand_from setup migrate run status pause resume retry history retire pin unpin adopt orphans check template plan snapshot simulate explain help" -f -a "run" -d 'Run the daemon'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand help; and not __fish_seen_subcommand_from setup migrate run status pause resume retry history retire pin unpin adopt orphans check template plan snapshot simulate explain help" -f -a "status" -d 'Show what the running daemon sees, is doing and has decided'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand help; and not __fish_seen_subcommand_from setup migrate run status pause resume retry history retire pin unpin adopt orphans check template plan snapshot simulate explain help" -f -a "pause" -d 'Pause the daemon: it starts nothing new until `resume`'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand help; and not __fish_seen_subcommand_from setup migrate run status pause resume retry history retire pin unpin adopt orphans check template plan snapshot simulate explain help" -f -a "resume" -d 'Resume after `pause`'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand help; and not __fish_seen_subcommand_from setup migrate run status pause resume retry history retire pin unpin adopt orphans check template plan snapshot simulate explain help" -f -a "retry" -d 'End the back-off of hosts and pools after failures'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand help; and not __fish_seen_subcommand_from setup migrate run status pause resume retry history retire pin unpin adopt orphans check template plan snapshot simulate explain help" -f -a "history" -d 'Show recent decisions and their outcomes'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand help; and not __fish_seen_subcommand_from setup migrate run status pause resume retry history retire pin unpin adopt orphans check template plan snapshot simulate explain help" -f -a "retire" -d 'Drain a node and destroy its machine'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand help; and not __fish_seen_subcommand_from setup migrate run status pause resume retry history retire pin unpin adopt orphans check template plan snapshot simulate explain help" -f -a "pin" -d 'Keep a node, even if it is unneeded'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand help; and not __fish_seen_subcommand_from setup migrate run status pause resume retry history retire pin unpin adopt orphans check template plan snapshot simulate explain help" -f -a "unpin" -d 'Undo `pin`: allow the node to be removed'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand help; and not __fish_seen_subcommand_from setup migrate run status pause resume retry history retire pin unpin adopt orphans check template plan snapshot simulate explain help" -f -a "adopt" -d 'Turn an existing worker into a machine of a pool'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand help; and not __fish_seen_subcommand_from setup migrate run status pause resume retry history retire pin unpin adopt orphans check template plan snapshot simulate explain help" -f -a "orphans" -d 'Show VMs of this cluster that have no record, and the evidence that they are left over'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand help; and not __fish_seen_subcommand_from setup migrate run status pause resume retry history retire pin unpin adopt orphans check template plan snapshot simulate explain help" -f -a "check" -d 'Check the configuration and both clusters, and report what is wrong'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand help; and not __fish_seen_subcommand_from setup migrate run status pause resume retry history retire pin unpin adopt orphans check template plan snapshot simulate explain help" -f -a "template" -d 'Create the templates that the configuration describes, or replace those whose settings have changed'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand help; and not __fish_seen_subcommand_from setup migrate run status pause resume retry history retire pin unpin adopt orphans check template plan snapshot simulate explain help" -f -a "plan" -d 'Show what the daemon would decide now, and why, without changing anything'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand help; and not __fish_seen_subcommand_from setup migrate run status pause resume retry history retire pin unpin adopt orphans check template plan snapshot simulate explain help" -f -a "snapshot" -d 'Write a snapshot for `plan` to standard output, from the live cluster or from a recording'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand help; and not __fish_seen_subcommand_from setup migrate run status pause resume retry history retire pin unpin adopt orphans check template plan snapshot simulate explain help" -f -a "simulate" -d 'Show what one or more configurations would have done in recorded rounds'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand help; and not __fish_seen_subcommand_from setup migrate run status pause resume retry history retire pin unpin adopt orphans check template plan snapshot simulate explain help" -f -a "explain" -d 'Show which nodes could take a pod, or why a node is kept'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand help; and not __fish_seen_subcommand_from setup migrate run status pause resume retry history retire pin unpin adopt orphans check template plan snapshot simulate explain help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand retire" -f -a "(pve-autoscaler names nodes -- (commandline -opc) 2>/dev/null)"
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand pin" -f -a "(pve-autoscaler names nodes -- (commandline -opc) 2>/dev/null)"
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand unpin" -f -a "(pve-autoscaler names nodes -- (commandline -opc) 2>/dev/null)"
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand retry" -f -a "(pve-autoscaler names places -- (commandline -opc) 2>/dev/null)"
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand history" -f -a "(pve-autoscaler names all -- (commandline -opc) 2>/dev/null)"
complete -c pve-autoscaler -l cluster -x -a "(pve-autoscaler names clusters -- (commandline -opc) 2>/dev/null)"
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand explain" -l node -x -a "(pve-autoscaler names nodes -- (commandline -opc) 2>/dev/null)"
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand adopt" -l pool -x -a "(pve-autoscaler names pools -- (commandline -opc) 2>/dev/null)"
