// All programs of a single-node Kubernetes in one binary: etcd, kube-apiserver,
// kube-controller-manager, kube-scheduler, kubelet, kube-proxy and kubectl. What
// they share is linked once, which is what makes a build bearable on two cores.
package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	_ "time/tzdata" // for the time zones of CronJobs, as the real programs have them

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"

	_ "k8s.io/client-go/plugin/pkg/client/auth"
	"k8s.io/component-base/cli"
	"k8s.io/component-base/logs"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectlcmd "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// Each returns the exit code.
var programs = map[string]func() int{
	"etcd":                    func() int { etcdmain.Main(append([]string{"etcd"}, os.Args[1:]...)); return 0 },
	"kube-apiserver":          func() int { return run(apiserver.NewAPIServerCommand()) },
	"kube-controller-manager": func() int { return run(controllers.NewControllerManagerCommand()) },
	"kube-proxy":              func() int { return run(proxy.NewProxyCommand()) },
	"kube-scheduler":          func() int { return run(scheduler.NewSchedulerCommand()) },
	"kubectl":                 kubectl,
	"kubelet":                 func() int { return run(kubelet.NewKubeletCommand(context.Background())) },
}

func run(command *cobra.Command) int { return cli.Run(command) }

func kubectl() int {
	logs.GlogSetter(kubectlcmd.GetLogVerbosity(os.Args)) //nolint:errcheck // as kubectl's own main does
	if err := cli.RunNoErrOutput(kubectlcmd.NewDefaultKubectlCommand()); err != nil {
		kubectlutil.CheckErr(err) // prints it as people know it, and exits
	}
	return 0
}

// The program is named by the link that was called, or by the first argument.
func main() {
	program, found := programs[filepath.Base(os.Args[0])]
	if !found && len(os.Args) > 1 {
		if program, found = programs[os.Args[1]]; found {
			os.Args = os.Args[1:]
		}
	}
	if !found {
		fmt.Fprintln(os.Stderr, "usage: hyperkube PROGRAM ...; programs:", slices.Sorted(maps.Keys(programs)))
		os.Exit(2)
	}
	os.Exit(program())
}
