// Sends numbers by franz-go, one after the other, until its standard input ends, and prints each when it is acknowledged.
//
// Arguments: the addresses of the brokers, a topic, a transactional id if each number is to have a transaction, and
// anything more if the client is to try again sooner than by default.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	options := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(os.Args[1], ",")...),
		kgo.AllowAutoTopicCreation(),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	}
	isTransactional := len(os.Args) > 3
	if isTransactional {
		options = append(options, kgo.TransactionalID(os.Args[3]))
	}
	if len(os.Args) > 4 {
		wait := func(int) time.Duration { return 250 * time.Millisecond }
		options = append(options, kgo.RetryBackoffFn(wait), kgo.MetadataMinAge(time.Second))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		panic(err)
	}
	go func() {
		io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	for number := 0; ; {
		record := &kgo.Record{Topic: os.Args[2], Partition: 0, Value: []byte(fmt.Sprint(number))}
		if isTransactional {
			err = inTransaction(client, record)
		} else {
			err = client.ProduceSync(context.Background(), record).FirstErr()
		}
		if err == nil {
			fmt.Println(number)
			number++
		} else {
			fmt.Fprintln(os.Stderr, err)
		}
	}
}

func inTransaction(client *kgo.Client, record *kgo.Record) error {
	ctx := context.Background()
	if err := client.BeginTransaction(); err != nil {
		return err
	}
	err := client.ProduceSync(ctx, record).FirstErr()
	if ended := client.EndTransaction(ctx, kgo.TransactionEndTry(err == nil)); err == nil {
		err = ended
	}
	return err
}
