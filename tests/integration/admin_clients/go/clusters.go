package main

import (
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/apache/pulsar-client-go/pulsaradmin"
	"github.com/apache/pulsar-client-go/pulsaradmin/pkg/utils"
)

func clusters(c *checks, client pulsaradmin.Client, cluster string) {
	far := utils.ClusterData{
		Name: "far", ServiceURL: "http://far.example:8080", BrokerServiceURL: "pulsar://far.example:6650"}
	c.check("clusters", func() error {
		found, err := client.Clusters().List()
		if err != nil {
			return err
		}
		if !slices.Contains(found, cluster) {
			return fmt.Errorf("listed are %v", found)
		}
		return all(
			func() error { return client.Clusters().Create(far) },
			func() error {
				data, err := client.Clusters().Get("far")
				if err != nil {
					return err
				}
				return that(data.ServiceURL == far.ServiceURL, "another URL")
			},
			func() error { return client.Clusters().Update(far) },
		)
	})
	c.refused("create a cluster twice", http.StatusConflict, func() error { return client.Clusters().Create(far) })
	c.check("delete a cluster", func() error { return client.Clusters().Delete("far") })
	c.refused("a missing cluster", http.StatusNotFound, func() error {
		_, err := client.Clusters().Get("missing")
		return err
	})
}

func brokers(c *checks, client pulsaradmin.Client, cluster string) {
	b := client.Brokers()
	c.check("brokers", func() error {
		active, err := b.GetActiveBrokers(cluster)
		if err != nil {
			return err
		}
		if len(active) == 0 {
			return errors.New("none is active")
		}
		leader, err := b.GetLeaderBroker()
		if err != nil {
			return err
		}
		for _, each := range active {
			if _, err := b.GetOwnedNamespaces(cluster, each); err != nil {
				return err
			}
		}
		return that(leader.ServiceURL != "", "no URL of the leader")
	})
	c.check("health of a broker", b.HealthCheck)
	c.check("dynamic configuration", func() error {
		const key = "dispatchThrottlingRatePerTopicInMsg"
		names, err := b.GetDynamicConfigurationNames()
		if err != nil {
			return err
		}
		if !slices.Contains(names, key) {
			return fmt.Errorf("%s is not dynamic", key)
		}
		if _, err := b.GetRuntimeConfigurations(); err != nil {
			return err
		}
		value := func() (string, error) {
			found, err := b.GetAllDynamicConfigurations()
			return found[key], err
		}
		return all(
			func() error { return b.UpdateDynamicConfiguration(key, "123456") },
			func() error { return seen(c, "123456", value) },
			func() error { return b.DeleteDynamicConfiguration(key) },
			func() error { return seen(c, "", value) },
		)
	})
	c.refused("dynamic configuration that is not", http.StatusPreconditionFailed,
		func() error { return b.UpdateDynamicConfiguration("clusterName", "other") })
	c.check("figures of a broker", func() error {
		if _, err := client.BrokerStats().GetTopics(); err != nil {
			return err
		}
		if _, err := client.BrokerStats().GetMetrics(); err != nil {
			return err
		}
		if _, err := client.BrokerStats().GetMBeans(); err != nil {
			return err
		}
		if _, err := client.BrokerStats().GetAllocatorStats("default"); err != nil {
			return err
		}
		_, err := client.BrokerStats().GetLoadReport()
		return err
	})
}

func quotas(c *checks, client pulsaradmin.Client) {
	q := client.ResourceQuotas()
	c.check("resource quotas", func() error {
		const bundle = "0x40000000_0x80000000"
		before, err := q.GetDefaultResourceQuota()
		if err != nil {
			return err
		}
		quota := utils.ResourceQuota{MsgRateIn: 11, MsgRateOut: 22, BandwidthIn: 33, BandwidthOut: 44, Memory: 55}
		of := func() (*utils.ResourceQuota, error) { return q.GetNamespaceBundleResourceQuota(namespace, bundle) }
		return all(
			func() error { return q.SetNamespaceBundleResourceQuota(namespace, bundle, quota) },
			func() error { return seen(c, &quota, of) },
			func() error { return q.ResetNamespaceBundleResourceQuota(namespace, bundle) },
			func() error { return seen(c, before, of) },
		)
	})
}
