// Drives a service through Apache Pulsar's Go admin client and prints what came of each check.
//
// Arguments: the service's HTTP URL, its cluster, a topic with ten messages, and optionally for how many
// seconds to wait until a value that was set is seen.
package main

import (
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/apache/pulsar-client-go/pulsaradmin"
	"github.com/apache/pulsar-client-go/pulsaradmin/pkg/utils"
)

const (
	tenant    = "go-admin"
	namespace = tenant + "/ns"
)

func main() {
	c := &checks{}
	if len(os.Args) > 4 {
		seconds, err := strconv.Atoi(os.Args[4])
		fail(err)
		c.patience = time.Duration(seconds) * time.Second
	}
	cluster := os.Args[2]
	client, err := pulsaradmin.NewClient(&pulsaradmin.Config{
		WebServiceURL:                 os.Args[1],
		Token:                         os.Getenv("ADMIN_CLIENT_TOKEN"), // none where it is empty
		TLSTrustCertsFilePath:         os.Getenv("ADMIN_CLIENT_TRUST"),
		TLSEnableHostnameVerification: true,
	})
	fail(err)
	tenants(c, client, cluster)
	namespaces(c, client, cluster)
	namespacePolicies(c, client.Namespaces(), cluster)
	bundles(c, client)
	topics(c, client)
	topicPolicies(c, client, cluster)
	schemas(c, client, "persistent://"+namespace+"/policies")
	messages(c, client, name(os.Args[3]))
	clusters(c, client, cluster)
	brokers(c, client, cluster)
	quotas(c, client)
	deletion(c, client)
	if c.failed == 0 {
		fmt.Println("all ok")
	} else {
		fmt.Println(c.failed, "failed")
	}
}

func fail(err error) {
	if err != nil {
		panic(err)
	}
}

func name(topic string) utils.TopicName {
	found, err := utils.GetTopicName(topic)
	fail(err)
	return *found
}

func ns() utils.NameSpaceName {
	found, err := utils.GetNamespaceName(namespace)
	fail(err)
	return *found
}

func tenants(c *checks, client pulsaradmin.Client, cluster string) {
	made := utils.TenantData{Name: tenant, AdminRoles: []string{"root"}, AllowedClusters: []string{cluster}}
	c.check("create a tenant", func() error {
		return all(
			func() error { return client.Tenants().Create(made) },
			func() error {
				found, err := client.Tenants().Get(tenant)
				if err != nil {
					return err
				}
				return that(slices.Equal(found.AdminRoles, made.AdminRoles), "other roles")
			},
			func() error {
				found, err := client.Tenants().List()
				if err != nil {
					return err
				}
				return that(slices.Contains(found, tenant), "it is not listed")
			},
		)
	})
	c.refused("create a tenant twice", http.StatusConflict, func() error { return client.Tenants().Create(made) })
	c.check("update a tenant", func() error {
		made.AdminRoles = []string{"other"}
		return client.Tenants().Update(made)
	})
	c.refused("a missing tenant", http.StatusNotFound, func() error {
		_, err := client.Tenants().Get("missing")
		return err
	})
}

func namespaces(c *checks, client pulsaradmin.Client, cluster string) {
	n := client.Namespaces()
	made := *utils.NewDefaultPolicies()
	made.Bundles = utils.NewBundlesDataWithNumBundles(4)
	made.ReplicationClusters = []string{cluster}
	c.check("create a namespace", func() error {
		return all(
			func() error { return n.CreateNsWithPolices(namespace, made) },
			func() error {
				return same([]string{namespace}, func() ([]string, error) { return n.GetNamespaces(tenant) })
			},
			func() error { return same([]string{}, func() ([]string, error) { return n.GetTopics(namespace) }) },
		)
	})
	c.refused("create a namespace twice", http.StatusConflict, func() error { return n.CreateNamespace(namespace) })
	c.refused("a namespace of a missing tenant", http.StatusNotFound,
		func() error { return n.CreateNamespace("missing/ns") })
	c.refused("policies of a missing namespace", http.StatusNotFound, func() error {
		_, err := n.GetPolicies(tenant + "/missing")
		return err
	})
	c.check("permissions of a namespace", func() error {
		consume, err := utils.ParseAuthAction("consume")
		fail(err)
		permissions := func() (map[string][]utils.AuthAction, error) { return n.GetNamespacePermissions(ns()) }
		return all(
			func() error { return n.GrantNamespacePermission(ns(), "somebody", []utils.AuthAction{consume}) },
			func() error { return same(map[string][]utils.AuthAction{"somebody": {consume}}, permissions) },
			func() error { return n.RevokeNamespacePermission(ns(), "somebody") },
			func() error { return same(map[string][]utils.AuthAction{}, permissions) },
		)
	})
	c.check("permissions of a subscription", func() error {
		return all(
			func() error { return n.GrantSubPermission(ns(), "sub", []string{"one"}) },
			func() error {
				return same(map[string][]string{"sub": {"one"}},
					func() (map[string][]string, error) { return n.GetSubPermissions(ns()) })
			},
			func() error { return n.RevokeSubPermission(ns(), "sub", "one") },
		)
	})
}

func bundles(c *checks, client pulsaradmin.Client) {
	n := client.Namespaces()
	c.check("split a bundle", func() error {
		return all(
			func() error { return n.SplitNamespaceBundle(namespace, "0x00000000_0x40000000", true) },
			func() error {
				return seen(c, 5, func() (int, error) {
					found, err := n.GetPolicies(namespace)
					if err != nil {
						return 0, err
					}
					return found.Bundles.NumBundles, nil
				})
			},
		)
	})
	c.check("unload a bundle", func() error { return n.UnloadNamespaceBundle(namespace, "0x00000000_0x20000000") })
	c.check("unload a namespace", func() error { return n.Unload(namespace) })
	c.check("clear the backlog of a namespace", func() error { return n.ClearNamespaceBacklog(ns()) })
}

func deletion(c *checks, client pulsaradmin.Client) {
	c.refused("delete a namespace that has topics", http.StatusConflict,
		func() error { return client.Namespaces().DeleteNamespace(namespace) })
	c.refused("delete a tenant that has namespaces", http.StatusConflict,
		func() error { return client.Tenants().Delete(tenant) })
	c.check("delete everything", func() error {
		partitioned, plain, err := client.Topics().List(ns())
		if err != nil {
			return err
		}
		if len(partitioned) > 0 {
			return fmt.Errorf("partitioned topics are left: %v", partitioned)
		}
		for _, topic := range plain {
			if err := client.Topics().Delete(name(topic), true, true); err != nil {
				return err
			}
		}
		return all(
			func() error { return client.Namespaces().DeleteNamespace(namespace) },
			func() error { return client.Tenants().Delete(tenant) },
		)
	})
}
