// The node's name server: CoreDNS with the few plugins that one node needs, so that
// it builds in a minute once the packages of Kubernetes are compiled.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/log"
)

func main() {
	dnsserver.Directives = []string{"bind", "errors", "log", "cache", "kubernetes"}
	coremain.Run()
}
