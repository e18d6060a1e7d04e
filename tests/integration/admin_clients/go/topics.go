package main

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsaradmin"
	"github.com/apache/pulsar-client-go/pulsaradmin/pkg/utils"
)

const messageCount = 10

func topics(c *checks, client pulsaradmin.Client) {
	t := client.Topics()
	plain, parts := name("persistent://"+namespace+"/plain"), name("persistent://"+namespace+"/parts")
	missing := name("persistent://" + namespace + "/missing")
	c.check("create a topic", func() error { return t.Create(plain, 0) })
	c.refused("create a topic twice", http.StatusConflict, func() error { return t.Create(plain, 0) })
	c.check("properties of a topic", func() error {
		return all(
			func() error { return t.UpdateProperties(plain, map[string]string{"a": "1", "b": "2"}) },
			func() error { return t.RemoveProperty(plain, "b") },
			func() error {
				return same(map[string]string{"a": "1"},
					func() (map[string]string, error) { return t.GetProperties(plain) })
			},
		)
	})
	c.check("permissions of a topic", func() error {
		produce, err := utils.ParseAuthAction("produce")
		fail(err)
		permissions := func() (map[string][]utils.AuthAction, error) { return t.GetPermissions(plain) }
		return all(
			func() error { return t.GrantPermission(plain, "somebody", []utils.AuthAction{produce}) },
			func() error { return same(map[string][]utils.AuthAction{"somebody": {produce}}, permissions) },
			func() error { return t.RevokePermission(plain, "somebody") },
			func() error { return same(map[string][]utils.AuthAction{}, permissions) },
		)
	})
	c.check("look a topic up", func() error {
		found, err := t.Lookup(plain)
		if err != nil {
			return err
		}
		bundle, err := t.GetBundleRange(plain)
		if err != nil {
			return err
		}
		return that(strings.HasPrefix(found.BrokerURL, "pulsar://") && strings.Contains(bundle, "_"),
			fmt.Sprintf("found %+v in %s", found, bundle))
	})
	c.check("unload a topic", func() error { return t.Unload(plain) })
	c.check("delete a topic", func() error { return t.Delete(plain, false, true) })
	c.check("create a partitioned topic", func() error {
		return all(
			func() error { return t.CreateWithProperties(parts, 3, map[string]string{"owner": "us"}) },
			func() error { return client.Subscriptions().Create(parts, "all", utils.Earliest) },
		)
	})
	c.refused("create a partitioned topic twice", http.StatusConflict, func() error { return t.Create(parts, 3) })
	c.check("grow a partitioned topic", func() error {
		return all(
			func() error { return t.Update(parts, 5) },
			func() error {
				return same(utils.PartitionedTopicMetadata{Partitions: 5},
					func() (utils.PartitionedTopicMetadata, error) { return t.GetMetadata(parts) })
			},
			func() error {
				partitioned, plain, err := t.List(ns())
				if err != nil {
					return err
				}
				return that(slices.Equal(partitioned, []string{parts.String()}) && len(plain) == 5,
					fmt.Sprintf("listed are %v and %v", partitioned, plain))
			},
		)
	})
	c.check("statistics of a partitioned topic", func() error {
		found, err := t.GetPartitionedStats(parts, true)
		if err != nil {
			return err
		}
		_, subscribed := found.Subscriptions["all"]
		return that(len(found.Partitions) == 5 && subscribed, fmt.Sprintf("found %+v", found))
	})
	c.check("a subscription on all partitions", func() error {
		s := client.Subscriptions()
		return all(
			func() error { return s.ClearBacklog(parts, "all") },
			func() error { return s.ResetCursorToTimestamp(parts, "all", 0) },
			func() error { return s.ResetCursorToMessageID(parts, "all", utils.Earliest) },
			func() error { return s.ExpireMessages(parts, "all", 1) },
			func() error { return s.ExpireAllMessages(parts, 1) },
			func() error {
				// The namespace has a compaction threshold by now, so that __compaction is listed beside it.
				found, err := s.List(parts)
				if err != nil {
					return err
				}
				return that(slices.Contains(found, "all"), fmt.Sprintf("found %v", found))
			},
		)
	})
	c.check("unload a partitioned topic", func() error { return t.Unload(parts) })
	c.check("delete a partitioned topic with force", func() error { return t.Delete(parts, true, false) })
	c.refused("statistics of a missing topic", http.StatusNotFound, func() error {
		_, err := t.GetStats(missing)
		return err
	})
	c.refused("delete a missing topic", http.StatusNotFound, func() error { return t.Delete(missing, false, true) })
	c.refused("unload a missing topic", http.StatusNotFound, func() error { return t.Unload(missing) })
	c.refused("a topic in a missing namespace", http.StatusNotFound,
		func() error { return t.Create(name("persistent://"+namespace+"-missing/topic"), 0) })
}

// messages: subscriptions and messages of a topic that has ten, "message 0" to "message 9", one by one.
func messages(c *checks, client pulsaradmin.Client, topic utils.TopicName) {
	t, s := client.Topics(), client.Subscriptions()
	backlog := func() (int64, error) {
		found, err := t.GetStats(topic)
		return found.Subscriptions["cursor"].MsgBacklog, err
	}
	has := func(expected int64) func() error {
		return func() error { return seen(c, expected, backlog) }
	}
	c.check("create a subscription", func() error {
		return all(
			func() error { return s.Create(topic, "cursor", utils.Earliest) },
			func() error { return same([]string{"cursor"}, func() ([]string, error) { return s.List(topic) }) },
			has(messageCount),
		)
	})
	c.refused("create a subscription twice", http.StatusConflict,
		func() error { return s.Create(topic, "cursor", utils.Earliest) })
	c.check("skip messages", func() error {
		return all(func() error { return s.SkipMessages(topic, "cursor", 3) }, has(messageCount-3))
	})
	c.check("clear a backlog", func() error {
		return all(func() error { return s.ClearBacklog(topic, "cursor") }, has(0))
	})
	c.check("reset a cursor by time", func() error {
		return all(func() error { return s.ResetCursorToTimestamp(topic, "cursor", 0) }, has(messageCount))
	})
	c.check("peek messages", func() error {
		found, err := s.PeekMessages(topic, "cursor", 5)
		if err != nil {
			return err
		}
		for number, message := range found {
			if string(message.Payload) != fmt.Sprintf("message %d", number) {
				return fmt.Errorf("message %d is %q", number, message.Payload)
			}
		}
		return that(len(found) == 5, fmt.Sprintf("%d messages", len(found)))
	})
	c.check("reset a cursor by id", func() error {
		found, err := s.PeekMessages(topic, "cursor", 4)
		if err != nil {
			return err
		}
		return all(
			func() error { return s.ResetCursorToMessageID(topic, "cursor", found[3].MessageID) },
			has(messageCount-3),
			func() error { return s.ResetCursorToMessageID(topic, "cursor", utils.Latest) },
			has(0),
			func() error { return s.ResetCursorToMessageID(topic, "cursor", utils.Earliest) },
			has(messageCount),
		)
	})
	c.check("expire messages", func() error {
		time.Sleep(2100 * time.Millisecond)
		return all(
			func() error { return s.ExpireMessages(topic, "cursor", 1) },
			has(0),
			func() error { return s.ResetCursorToTimestamp(topic, "cursor", 0) },
			func() error { return s.ExpireAllMessages(topic, 1) },
			has(0),
			func() error { return s.ResetCursorToTimestamp(topic, "cursor", 0) },
		)
	})
	c.check("a message by its id", func() error {
		last, err := t.GetLastMessageID(topic)
		if err != nil {
			return err
		}
		found, err := s.GetMessagesByID(topic, last.LedgerID, last.EntryID)
		if err != nil {
			return err
		}
		return that(len(found) == 1 && string(found[0].Payload) == "message 9", fmt.Sprintf("found %+v", found))
	})
	c.check("the first message since a time", func() error {
		_, err := t.GetMessageID(topic, 0)
		return err
	})
	c.refused("skip messages of a missing subscription", http.StatusNotFound,
		func() error { return s.SkipMessages(topic, "missing", 1) })
	c.check("internal statistics of a topic", func() error {
		found, err := t.GetInternalStats(topic)
		if err != nil {
			return err
		}
		_, err = t.GetInternalInfo(topic)
		if err != nil {
			return err
		}
		_, cursor := found.Cursors["cursor"]
		return that(found.NumberOfEntries == messageCount && cursor, fmt.Sprintf("found %+v", found))
	})
	c.check("compaction and offload have not run", func() error {
		compaction, err := t.CompactStatus(topic)
		if err != nil {
			return err
		}
		offload, err := t.OffloadStatus(topic)
		if err != nil {
			return err
		}
		return that(compaction.Status == utils.NOTRUN && offload.Status == utils.NOTRUN,
			fmt.Sprintf("%+v, %+v", compaction, offload))
	})
	c.check("delete a subscription", func() error { return s.Delete(topic, "cursor") })
	c.check("terminate a topic", func() error {
		last, err := t.Terminate(topic)
		if err != nil {
			return err
		}
		return that(last.EntryID == messageCount-1, fmt.Sprintf("its last message is %+v", last))
	})
	c.check("delete a topic with force", func() error { return t.Delete(topic, true, true) })
}

func schemas(c *checks, client pulsaradmin.Client, topic string) {
	s := client.Schemas()
	payload := utils.PostSchemaPayload{
		SchemaType: "JSON",
		Schema:     `{"type":"record","name":"Reading","fields":[{"name":"value","type":"int"}]}`,
		Properties: map[string]string{"a": "1"},
	}
	c.refused("a missing schema", http.StatusNotFound, func() error {
		_, err := s.GetSchemaInfo(topic)
		return err
	})
	c.check("create a schema", func() error {
		if err := s.CreateSchemaByPayload(topic, payload); err != nil {
			return err
		}
		found, err := s.GetSchemaInfoWithVersion(topic)
		if err != nil {
			return err
		}
		versions, err := s.GetAllSchemas(topic)
		if err != nil {
			return err
		}
		return that(found.Version == 0 && found.SchemaInfo.Type == "JSON" && len(versions) == 1,
			fmt.Sprintf("found %+v", found))
	})
	c.check("the version of a schema", func() error {
		return same(0, func() (int64, error) { return s.GetVersionByPayload(topic, payload) })
	})
	c.check("compatibility of a schema", func() error {
		found, err := s.TestCompatibilityWithPostSchemaPayload(topic, payload)
		if err != nil {
			return err
		}
		return that(found.IsCompatibility, "not with itself")
	})
	c.check("delete a schema", func() error { return s.ForceDeleteSchema(topic) })
}
