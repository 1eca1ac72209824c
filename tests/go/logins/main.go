// Logins of three clients of Go: each writes one record with the settings of each case, and what came of it is printed.
//
// The argument is a file with the cases, a JSON array. A case is "in", or it ends with the client's own error: "refused"
// (SASL_AUTHENTICATION_FAILED), "not taken" (UNSUPPORTED_SASL_MECHANISM), "no TLS" (TLS, or a certificate, was refused),
// "no broker" (Sarama, which does not always say why), or whatever else the client said. No case may take longer than a client waits.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/IBM/sarama"
	"github.com/segmentio/kafka-go"
	kafkasasl "github.com/segmentio/kafka-go/sasl"
	kafkaplain "github.com/segmentio/kafka-go/sasl/plain"
	kafkascram "github.com/segmentio/kafka-go/sasl/scram"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
	xdg "github.com/xdg-go/scram"
)

const timeout = 20 * time.Second

// Case has the settings of one login. Mechanism is empty where nobody logs in, and Authority where there is no TLS.
type Case struct {
	Name, Bootstrap, Topic           string
	Mechanism, User, Password, Token string
	Authority, Certificate, Key      string
}

func (c Case) tls() *tls.Config {
	if c.Authority == "" {
		return nil
	}
	trusted, err := os.ReadFile(c.Authority)
	fatal(err)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(trusted)
	host, _, err := net.SplitHostPort(c.Bootstrap)
	fatal(err)
	config := &tls.Config{RootCAs: pool, ServerName: host}
	if c.Certificate != "" {
		shown, err := tls.LoadX509KeyPair(c.Certificate, c.Key)
		fatal(err)
		// By itself Go shows no certificate of an authority for which the broker did not ask.
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &shown, nil }
	}
	return config
}

// -- franz-go ---------------------------------------------------------------------------------------------------------

func byFranz(ctx context.Context, c Case) error {
	options := []kgo.Opt{kgo.SeedBrokers(c.Bootstrap), kgo.DefaultProduceTopic(c.Topic)}
	if config := c.tls(); config != nil {
		options = append(options, kgo.DialTLSConfig(config))
	}
	switch c.Mechanism {
	case "":
	case "PLAIN":
		options = append(options, kgo.SASL(plain.Auth{User: c.User, Pass: c.Password}.AsMechanism()))
	case "SCRAM-SHA-256":
		options = append(options, kgo.SASL(scram.Auth{User: c.User, Pass: c.Password}.AsSha256Mechanism()))
	case "SCRAM-SHA-512":
		options = append(options, kgo.SASL(scram.Auth{User: c.User, Pass: c.Password}.AsSha512Mechanism()))
	case "OAUTHBEARER":
		options = append(options, kgo.SASL(oauth.Auth{Token: c.Token}.AsMechanism()))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return err
	}
	defer client.Close()
	if err := client.Ping(ctx); err != nil {
		return err
	}
	return client.ProduceSync(ctx, kgo.StringRecord("franz-go")).FirstErr()
}

// -- kafka-go ---------------------------------------------------------------------------------------------------------

func byKafkaGo(ctx context.Context, c Case) error {
	dialer := &kafka.Dialer{TLS: c.tls(), ClientID: "kafka-go"}
	var err error
	switch c.Mechanism {
	case "":
	case "PLAIN":
		dialer.SASLMechanism = kafkaplain.Mechanism{Username: c.User, Password: c.Password}
	case "SCRAM-SHA-256":
		dialer.SASLMechanism, err = kafkascram.Mechanism(kafkascram.SHA256, c.User, c.Password)
	case "SCRAM-SHA-512":
		dialer.SASLMechanism, err = kafkascram.Mechanism(kafkascram.SHA512, c.User, c.Password)
	case "OAUTHBEARER":
		dialer.SASLMechanism = bearer(c.Token)
	}
	if err != nil {
		return err
	}
	connection, err := dialer.DialLeader(ctx, "tcp", c.Bootstrap, c.Topic, 0)
	if err != nil {
		return err
	}
	defer connection.Close()
	deadline, _ := ctx.Deadline()
	if err := connection.SetDeadline(deadline); err != nil {
		return err
	}
	_, err = connection.WriteMessages(kafka.Message{Value: []byte("kafka-go")})
	return err
}

// kafka-go leaves OAUTHBEARER to its users.
type bearer string

func (bearer) Name() string { return "OAUTHBEARER" }

func (token bearer) Start(context.Context) (kafkasasl.StateMachine, []byte, error) {
	return token, []byte("n,,\x01auth=Bearer " + string(token) + "\x01\x01"), nil
}

func (bearer) Next(context.Context, []byte) (bool, []byte, error) { return true, nil, nil }

// -- Sarama -----------------------------------------------------------------------------------------------------------

func bySarama(_ context.Context, c Case) error {
	config := sarama.NewConfig()
	config.Version = sarama.V3_6_0_0
	config.ClientID = "sarama"
	config.Producer.Return.Successes = true
	config.Metadata.Retry.Max = 0
	config.Net.DialTimeout, config.Net.ReadTimeout, config.Net.WriteTimeout = timeout, timeout, timeout
	if own := c.tls(); own != nil {
		config.Net.TLS.Enable, config.Net.TLS.Config = true, own
	}
	if c.Mechanism != "" {
		config.Net.SASL.Enable = true
		config.Net.SASL.Mechanism = sarama.SASLMechanism(c.Mechanism)
		config.Net.SASL.User, config.Net.SASL.Password = c.User, c.Password
		config.Net.SASL.TokenProvider = token(c.Token)
		hash := xdg.SHA256
		if c.Mechanism == "SCRAM-SHA-512" {
			hash = xdg.SHA512
		}
		config.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &exchange{hash: hash} }
	}
	producer, err := sarama.NewSyncProducer([]string{c.Bootstrap}, config)
	if err != nil {
		return err
	}
	defer producer.Close()
	_, _, err = producer.SendMessage(&sarama.ProducerMessage{Topic: c.Topic, Value: sarama.StringEncoder("sarama")})
	return err
}

type token string

func (t token) Token() (*sarama.AccessToken, error) {
	return &sarama.AccessToken{Token: string(t)}, nil
}

// Sarama leaves SCRAM to its users, and shows this in its examples.
type exchange struct {
	hash         xdg.HashGeneratorFcn
	conversation *xdg.ClientConversation
}

func (e *exchange) Begin(user, password, acting string) error {
	client, err := e.hash.NewClient(user, password, acting)
	if err != nil {
		return err
	}
	e.conversation = client.NewConversation()
	return nil
}

func (e *exchange) Step(challenge string) (string, error) { return e.conversation.Step(challenge) }

func (e *exchange) Done() bool { return e.conversation.Done() }

// -- what came of it --------------------------------------------------------------------------------------------------

func outcome(err error) string {
	var alert tls.AlertError
	var header tls.RecordHeaderError
	var authority x509.UnknownAuthorityError
	var host x509.HostnameError
	var invalid x509.CertificateInvalidError
	switch {
	case err == nil:
		return "in"
	case errors.Is(err, kerr.SaslAuthenticationFailed),
		errors.Is(err, kafka.SASLAuthenticationFailed),
		errors.Is(err, sarama.ErrSASLAuthenticationFailed):
		return "refused"
	case errors.Is(err, kerr.UnsupportedSaslMechanism),
		errors.Is(err, kafka.UnsupportedSASLMechanism),
		errors.Is(err, sarama.ErrUnsupportedSASLMechanism):
		return "not taken"
	case errors.As(err, &alert), errors.As(err, &header), errors.As(err, &authority), errors.As(err, &host),
		errors.As(err, &invalid),
		// How an alert of the other side looks.
		strings.Contains(err.Error(), "remote error: tls:"):
		return "no TLS"
	case errors.Is(err, sarama.ErrOutOfBrokers):
		return "no broker"
	}
	return fmt.Sprintf("%T: %s", err, strings.ReplaceAll(err.Error(), "\n", " "))
}

func fatal(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	content, err := os.ReadFile(os.Args[1])
	fatal(err)
	var cases []Case
	fatal(json.Unmarshal(content, &cases))
	clients := map[string]func(context.Context, Case) error{
		"franz-go": byFranz, "kafka-go": byKafkaGo, "sarama": bySarama,
	}
	outcomes := map[string]string{}
	var mutex sync.Mutex
	var all sync.WaitGroup
	for name, write := range clients {
		all.Add(1)
		// The cases of a client go one after the other, because an address may have so many strangers and no more.
		go func() {
			defer all.Done()
			for _, c := range cases {
				ctx, cancel := context.WithTimeout(context.Background(), timeout)
				result := outcome(write(ctx, c))
				cancel()
				mutex.Lock()
				outcomes[name+" "+c.Name] = result
				mutex.Unlock()
			}
		}()
	}
	all.Wait()
	fatal(json.NewEncoder(os.Stdout).Encode(outcomes))
}
