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

complete -c pve-autoscaler -n "__fish_pve_autoscaler_needs_command" -l cluster -d 'The Kubernetes cluster, if this host serves several: selects its configuration in /etc/pve-autoscaler/clusters/NAME, and its daemon\'s socket' -r
complete -c pve-autoscaler -n "__fish_pve_autoscaler_needs_command" -s h -l help -d 'Print help'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_needs_command" -s V -l version -d 'Print version'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_needs_command" -f -a "setup" -d 'Make what the daemon needs on both sides, and a first configuration'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_needs_command" -f -a "migrate" -d 'Write a configuration of another autoscaler\'s settings'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_needs_command" -f -a "run" -d 'Run the daemon'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_needs_command" -f -a "status" -d 'Show what the running daemon sees, does and has decided'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_needs_command" -f -a "pause" -d 'Stop everything: nothing new is begun until `resume`'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_needs_command" -f -a "resume" -d 'Go on after `pause`'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_needs_command" -f -a "retry" -d 'Try hosts and pools that are left alone after failures again now'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_needs_command" -f -a "history" -d 'Show what was decided lately, and what became of it'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_needs_command" -f -a "retire" -d 'Drain a node and destroy its machine'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_needs_command" -f -a "pin" -d 'Keep a node, however little it is used'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_needs_command" -f -a "unpin" -d 'Treat a node that was pinned as any other again'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_needs_command" -f -a "adopt" -d 'Make a worker that others made a machine of a pool'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_needs_command" -f -a "orphans" -d 'Show VMs of this cluster that have no record, and what proves that they are left over'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_needs_command" -f -a "check" -d 'Check the configuration and both clusters, and say what is wrong'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_needs_command" -f -a "template" -d 'Make the templates that the configuration describes, or replace them if their description has changed'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_needs_command" -f -a "plan" -d 'Show what would be decided, and why; touches nothing'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_needs_command" -f -a "snapshot" -d 'Write what `plan` reads from the live cluster to standard output'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_needs_command" -f -a "simulate" -d 'Show what configurations would have done with recorded rounds'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_needs_command" -f -a "explain" -d 'Show which nodes could take a pod, or why a node stays'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_needs_command" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand setup" -l proxmox -d 'Proxmox VE: the address of any host of the cluster' -r
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand setup" -l proxmox-ca -d 'The certificate authority of Proxmox VE' -r -F
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand setup" -l admin-token-id -d 'The administrator\'s token' -r
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand setup" -l admin-token-file -d 'The file with the secret of the administrator\'s token; without it Proxmox VE is asked through `pvesh`, as root' -r -F
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand setup" -l pvesh -d 'The program that asks Proxmox VE without a token' -r -F
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand setup" -l admin-kubeconfig -d 'The administrator\'s kubeconfig' -r -F
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand setup" -l folder -d 'Where configuration and credentials go' -r -F
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand setup" -l user -d 'The user that is made in Proxmox VE' -r
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand setup" -l token -d 'The name of its token' -r
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand setup" -l resource-pool -d 'The resource pool of its machines' -r
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand setup" -l template -d 'The template of the workers, by VMID or name' -r
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand setup" -l addresses -d 'The workers\' addresses, FIRST-LAST, which nothing else uses or hands out' -r
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand setup" -l prefix -d 'The length of their network\'s prefix; 24 unless given, with IPv6 64' -r
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand setup" -l gateway -d 'Their gateway' -r
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand setup" -l dns -d 'Their name server; the gateway unless given' -r
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand setup" -l vmids -d 'The workers\' VMIDs, FIRST-LAST; a free row unless given' -r
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand setup" -l bridge -d 'Their bridge; the template\'s unless given' -r
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand setup" -l max -d 'The most workers at a time' -r
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand setup" -l cluster -d 'The Kubernetes cluster, if this host serves several: selects its configuration in /etc/pve-autoscaler/clusters/NAME, and its daemon\'s socket' -r
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand setup" -l dry-run -d 'Say what would be done, and do nothing'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand setup" -s h -l help -d 'Print help'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand migrate" -l output -d 'Write the configuration to this file, which must not be there yet, instead of standard output' -r -F
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand migrate" -l cluster -d 'The Kubernetes cluster, if this host serves several: selects its configuration in /etc/pve-autoscaler/clusters/NAME, and its daemon\'s socket' -r
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand migrate" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand run" -l config -d 'The configuration' -r -F
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand run" -l socket -d 'Where `status` asks' -r -F
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand run" -l log-level -d 'How much to log: error, warn, info, debug or trace; or directives such as `info,kube=debug`' -r
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand run" -l cluster -d 'The Kubernetes cluster, if this host serves several: selects its configuration in /etc/pve-autoscaler/clusters/NAME, and its daemon\'s socket' -r
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand run" -s h -l help -d 'Print help'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand status" -l socket -d 'Where the daemon listens' -r -F
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand status" -l watch -d 'Refresh every SECONDS (2 unless given), until Ctrl-C; without a terminal, print line by line' -r
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand status" -l output -d 'How to print' -r -f -a "text\t'For a person'
json\t'For a program; the format is stable'"
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand status" -l cluster -d 'The Kubernetes cluster, if this host serves several: selects its configuration in /etc/pve-autoscaler/clusters/NAME, and its daemon\'s socket' -r
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand status" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand pause" -l reason -d 'Why, for those who look at `status` or the log' -r
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand pause" -l socket -d 'Where the daemon listens' -r -F
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand pause" -l cluster -d 'The Kubernetes cluster, if this host serves several: selects its configuration in /etc/pve-autoscaler/clusters/NAME, and its daemon\'s socket' -r
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand pause" -s h -l help -d 'Print help'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand resume" -l socket -d 'Where the daemon listens' -r -F
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand resume" -l cluster -d 'The Kubernetes cluster, if this host serves several: selects its configuration in /etc/pve-autoscaler/clusters/NAME, and its daemon\'s socket' -r
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand resume" -s h -l help -d 'Print help'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand retry" -l socket -d 'Where the daemon listens' -r -F
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand retry" -l cluster -d 'The Kubernetes cluster, if this host serves several: selects its configuration in /etc/pve-autoscaler/clusters/NAME, and its daemon\'s socket' -r
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand retry" -s h -l help -d 'Print help'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand history" -l socket -d 'Where the daemon listens' -r -F
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand history" -l output -d 'How to print' -r -f -a "text\t'For a person'
json\t'For a program; the format is stable'"
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand history" -l cluster -d 'The Kubernetes cluster, if this host serves several: selects its configuration in /etc/pve-autoscaler/clusters/NAME, and its daemon\'s socket' -r
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand history" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand retire" -l socket -d 'Where the daemon listens' -r -F
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand retire" -l output -d 'How to print' -r -f -a "text\t'For a person'
json\t'For a program; the format is stable'"
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand retire" -l reason -d 'Why, for those who look at `status` or the log' -r
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand retire" -l cluster -d 'The Kubernetes cluster, if this host serves several: selects its configuration in /etc/pve-autoscaler/clusters/NAME, and its daemon\'s socket' -r
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand retire" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand pin" -l socket -d 'Where the daemon listens' -r -F
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand pin" -l output -d 'How to print' -r -f -a "text\t'For a person'
json\t'For a program; the format is stable'"
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand pin" -l reason -d 'Why, for those who look at `history` or the Node (annotation `pve-autoscaler/scale-down-disabled-reason`)' -r
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand pin" -l cluster -d 'The Kubernetes cluster, if this host serves several: selects its configuration in /etc/pve-autoscaler/clusters/NAME, and its daemon\'s socket' -r
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand pin" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand unpin" -l socket -d 'Where the daemon listens' -r -F
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand unpin" -l output -d 'How to print' -r -f -a "text\t'For a person'
json\t'For a program; the format is stable'"
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand unpin" -l cluster -d 'The Kubernetes cluster, if this host serves several: selects its configuration in /etc/pve-autoscaler/clusters/NAME, and its daemon\'s socket' -r
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand unpin" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand adopt" -l pool -d 'The pool to adopt the node into' -r
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand adopt" -l config -d 'The configuration' -r -F
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand adopt" -l socket -d 'Where the daemon listens, to notify it' -r -F
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand adopt" -l output -d 'How to print' -r -f -a "text\t'For a person'
json\t'For a program; the format is stable'"
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand adopt" -l cluster -d 'The Kubernetes cluster, if this host serves several: selects its configuration in /etc/pve-autoscaler/clusters/NAME, and its daemon\'s socket' -r
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand adopt" -l yes -d 'Do it: from then on the VM may be destroyed once no pod needs the node'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand adopt" -l dry-run -d 'Say what would be written, and write nothing, as without `--yes`'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand adopt" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand orphans" -l socket -d 'Where the daemon listens' -r -F
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand orphans" -l output -d 'How to print' -r -f -a "text\t'For a person'
json\t'For a program; the format is stable'"
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand orphans" -l cluster -d 'The Kubernetes cluster, if this host serves several: selects its configuration in /etc/pve-autoscaler/clusters/NAME, and its daemon\'s socket' -r
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand orphans" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand check" -l config -d 'The configuration' -r -F
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand check" -l for -d 'The command that the configuration is for' -r -f -a "run\t'The daemon'
plan\t'`plan` and `explain`, which need less'"
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand check" -l output -d 'How to print' -r -f -a "text\t'For a person'
json\t'For a program; the format is stable'"
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand check" -l cluster -d 'The Kubernetes cluster, if this host serves several: selects its configuration in /etc/pve-autoscaler/clusters/NAME, and its daemon\'s socket' -r
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand check" -l offline -d 'Only look at the configuration'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand check" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand template" -l config -d 'The configuration' -r -F
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand template" -l region -d 'Only those of this region' -r
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand template" -l token-id -d 'The token that may make templates; without it the daemon\'s' -r
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand template" -l token-file -d 'The file with that token\'s secret' -r -F
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand template" -l cluster -d 'The Kubernetes cluster, if this host serves several: selects its configuration in /etc/pve-autoscaler/clusters/NAME, and its daemon\'s socket' -r
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand template" -l dry-run -d 'Say what would be done, and do nothing'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand template" -l force -d 'Replace them even if nothing has changed'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand template" -s h -l help -d 'Print help'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand plan" -l config -d 'The configuration' -r -F
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand plan" -l snapshot -d 'A file of Kubernetes objects as kubectl prints them; `-` is standard input; without it the live cluster' -r -F
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand plan" -l now -d 'The time of the decision (RFC 3339); without it the snapshot\'s own, else the clock\'s' -r
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand plan" -l output -d 'How to print' -r -f -a "text\t'For a person'
json\t'For a program; the format is stable'"
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand plan" -l cluster -d 'The Kubernetes cluster, if this host serves several: selects its configuration in /etc/pve-autoscaler/clusters/NAME, and its daemon\'s socket' -r
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand plan" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand snapshot" -l config -d 'The configuration' -r -F
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand snapshot" -l records -d 'A folder of recorded rounds (`[record] days`), in place of the live cluster' -r -F
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand snapshot" -l at -d 'Of recorded rounds the last at this time (RFC 3339) or before; without it the last of all' -r
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand snapshot" -l cluster -d 'The Kubernetes cluster, if this host serves several: selects its configuration in /etc/pve-autoscaler/clusters/NAME, and its daemon\'s socket' -r
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand snapshot" -s h -l help -d 'Print help'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand simulate" -l records -d 'A folder of recorded rounds (`[record] days`); without it that of the first configuration' -r -F
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand simulate" -l config -d 'A configuration; repeat it to compare several' -r -F
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand simulate" -l scale -d 'What if there were so many times as many pods? e.g. `2.0` or `0.5`' -r
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand simulate" -l without-host -d 'What if this host were not there? Repeat it for more of them' -r
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand simulate" -l picture -d 'Also draw nodes and waiting pods over time into this file (SVG)' -r -F
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand simulate" -l output -d 'How to print' -r -f -a "text\t'For a person'
json\t'For a program; the format is stable'"
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand simulate" -l cluster -d 'The Kubernetes cluster, if this host serves several: selects its configuration in /etc/pve-autoscaler/clusters/NAME, and its daemon\'s socket' -r
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand simulate" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand explain" -l config -d 'The configuration [default: /etc/pve-autoscaler/config.toml]; of pods of a snapshot, pools are shown if it is given' -r -F
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand explain" -l snapshot -d 'A file of Kubernetes objects as kubectl prints them; `-` is standard input; without it the live cluster' -r -F
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand explain" -l now -d 'The time of the decision (RFC 3339); without it the snapshot\'s own, else the clock\'s' -r
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand explain" -l pod -d 'The pod' -r
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand explain" -l node -d 'The node' -r
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand explain" -l output -d 'How to print' -r -f -a "text\t'For a person'
json\t'For a program; the format is stable'"
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand explain" -l cluster -d 'The Kubernetes cluster, if this host serves several: selects its configuration in /etc/pve-autoscaler/clusters/NAME, and its daemon\'s socket' -r
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand explain" -l all-pods -d 'Every pod without a node'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand explain" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand help; and not __fish_seen_subcommand_from setup migrate run status pause resume retry history retire pin unpin adopt orphans check template plan snapshot simulate explain help" -f -a "setup" -d 'Make what the daemon needs on both sides, and a first configuration'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand help; and not __fish_seen_subcommand_from setup migrate run status pause resume retry history retire pin unpin adopt orphans check template plan snapshot simulate explain help" -f -a "migrate" -d 'Write a configuration of another autoscaler\'s settings'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand help; and not __fish_seen_subcommand_from setup migrate run status pause resume retry history retire pin unpin adopt orphans check template plan snapshot simulate explain help" -f -a "run" -d 'Run the daemon'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand help; and not __fish_seen_subcommand_from setup migrate run status pause resume retry history retire pin unpin adopt orphans check template plan snapshot simulate explain help" -f -a "status" -d 'Show what the running daemon sees, does and has decided'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand help; and not __fish_seen_subcommand_from setup migrate run status pause resume retry history retire pin unpin adopt orphans check template plan snapshot simulate explain help" -f -a "pause" -d 'Stop everything: nothing new is begun until `resume`'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand help; and not __fish_seen_subcommand_from setup migrate run status pause resume retry history retire pin unpin adopt orphans check template plan snapshot simulate explain help" -f -a "resume" -d 'Go on after `pause`'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand help; and not __fish_seen_subcommand_from setup migrate run status pause resume retry history retire pin unpin adopt orphans check template plan snapshot simulate explain help" -f -a "retry" -d 'Try hosts and pools that are left alone after failures again now'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand help; and not __fish_seen_subcommand_from setup migrate run status pause resume retry history retire pin unpin adopt orphans check template plan snapshot simulate explain help" -f -a "history" -d 'Show what was decided lately, and what became of it'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand help; and not __fish_seen_subcommand_from setup migrate run status pause resume retry history retire pin unpin adopt orphans check template plan snapshot simulate explain help" -f -a "retire" -d 'Drain a node and destroy its machine'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand help; and not __fish_seen_subcommand_from setup migrate run status pause resume retry history retire pin unpin adopt orphans check template plan snapshot simulate explain help" -f -a "pin" -d 'Keep a node, however little it is used'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand help; and not __fish_seen_subcommand_from setup migrate run status pause resume retry history retire pin unpin adopt orphans check template plan snapshot simulate explain help" -f -a "unpin" -d 'Treat a node that was pinned as any other again'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand help; and not __fish_seen_subcommand_from setup migrate run status pause resume retry history retire pin unpin adopt orphans check template plan snapshot simulate explain help" -f -a "adopt" -d 'Make a worker that others made a machine of a pool'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand help; and not __fish_seen_subcommand_from setup migrate run status pause resume retry history retire pin unpin adopt orphans check template plan snapshot simulate explain help" -f -a "orphans" -d 'Show VMs of this cluster that have no record, and what proves that they are left over'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand help; and not __fish_seen_subcommand_from setup migrate run status pause resume retry history retire pin unpin adopt orphans check template plan snapshot simulate explain help" -f -a "check" -d 'Check the configuration and both clusters, and say what is wrong'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand help; and not __fish_seen_subcommand_from setup migrate run status pause resume retry history retire pin unpin adopt orphans check template plan snapshot simulate explain help" -f -a "template" -d 'Make the templates that the configuration describes, or replace them if their description has changed'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand help; and not __fish_seen_subcommand_from setup migrate run status pause resume retry history retire pin unpin adopt orphans check template plan snapshot simulate explain help" -f -a "plan" -d 'Show what would be decided, and why; touches nothing'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand help; and not __fish_seen_subcommand_from setup migrate run status pause resume retry history retire pin unpin adopt orphans check template plan snapshot simulate explain help" -f -a "snapshot" -d 'Write what `plan` reads from the live cluster to standard output'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand help; and not __fish_seen_subcommand_from setup migrate run status pause resume retry history retire pin unpin adopt orphans check template plan snapshot simulate explain help" -f -a "simulate" -d 'Show what configurations would have done with recorded rounds'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand help; and not __fish_seen_subcommand_from setup migrate run status pause resume retry history retire pin unpin adopt orphans check template plan snapshot simulate explain help" -f -a "explain" -d 'Show which nodes could take a pod, or why a node stays'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand help; and not __fish_seen_subcommand_from setup migrate run status pause resume retry history retire pin unpin adopt orphans check template plan snapshot simulate explain help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand retire" -f -a "(pve-autoscaler names nodes -- (commandline -opc) 2>/dev/null)"
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand pin" -f -a "(pve-autoscaler names nodes -- (commandline -opc) 2>/dev/null)"
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand unpin" -f -a "(pve-autoscaler names nodes -- (commandline -opc) 2>/dev/null)"
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand retry" -f -a "(pve-autoscaler names places -- (commandline -opc) 2>/dev/null)"
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand history" -f -a "(pve-autoscaler names all -- (commandline -opc) 2>/dev/null)"
complete -c pve-autoscaler -l cluster -x -a "(pve-autoscaler names clusters -- (commandline -opc) 2>/dev/null)"
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand explain" -l node -x -a "(pve-autoscaler names nodes -- (commandline -opc) 2>/dev/null)"
complete -c pve-autoscaler -n "__fish_pve_autoscaler_using_subcommand adopt" -l pool -x -a "(pve-autoscaler names pools -- (commandline -opc) 2>/dev/null)"
