// The Go admin client (pulsaradmin, which pulsarctl is made of): calls any of its methods by name.
//
// A line is a part of the client, a method and a JSON list of arguments, with tabs between them; the answer is
// `ok`, a tab and a JSON list of what came back, or `failed`, a tab and the error.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"strings"

	"github.com/apache/pulsar-client-go/pulsaradmin"
	"github.com/apache/pulsar-client-go/pulsaradmin/pkg/utils"
)

func main() {
	client, err := pulsaradmin.NewClient(&pulsaradmin.Config{WebServiceURL: os.Args[1]})
	if err != nil {
		panic(err)
	}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		words := strings.SplitN(lines.Text(), "\t", 3)
		found, err := call(client, words[0], words[1], words[2])
		if err != nil {
			fmt.Printf("failed\t%s\n", strings.ReplaceAll(err.Error(), "\n", " "))
			continue
		}
		text, err := json.Marshal(found)
		if err != nil {
			fmt.Printf("failed\t%s\n", err)
			continue
		}
		fmt.Printf("ok\t%s\n", text)
	}
}

func call(client pulsaradmin.Client, part, name, arguments string) ([]any, error) {
	of := reflect.ValueOf(client).MethodByName(part).Call(nil)[0]
	method := of.MethodByName(name)
	if !method.IsValid() {
		return nil, fmt.Errorf("there is no %s().%s", part, name)
	}
	var given []json.RawMessage
	if err := json.Unmarshal([]byte(arguments), &given); err != nil {
		return nil, err
	}
	in := []reflect.Value{}
	for at, raw := range given {
		value, err := argument(method.Type().In(at), raw)
		if err != nil {
			return nil, err
		}
		in = append(in, value)
	}
	out := method.Call(in)
	if err, _ := out[len(out)-1].Interface().(error); err != nil {
		return nil, err
	}
	results := []any{}
	for _, one := range out[:len(out)-1] {
		results = append(results, one.Interface())
	}
	return results, nil
}

// Names of topics and namespaces are types of the client's own, made by functions of its own.
func argument(wanted reflect.Type, raw json.RawMessage) (reflect.Value, error) {
	var name string
	switch wanted {
	case reflect.TypeOf(utils.TopicName{}):
		if err := json.Unmarshal(raw, &name); err != nil {
			return reflect.Value{}, err
		}
		topic, err := utils.GetTopicName(name)
		if err != nil {
			return reflect.Value{}, err
		}
		return reflect.ValueOf(*topic), nil
	case reflect.TypeOf(utils.NameSpaceName{}):
		if err := json.Unmarshal(raw, &name); err != nil {
			return reflect.Value{}, err
		}
		namespace, err := utils.GetNamespaceName(name)
		if err != nil {
			return reflect.Value{}, err
		}
		return reflect.ValueOf(*namespace), nil
	}
	value := reflect.New(wanted)
	err := json.Unmarshal(raw, value.Interface())
	if tenant, ok := value.Interface().(*utils.TenantData); ok && err == nil {
		named := struct{ Name string }{} // the client leaves it out of its JSON
		err = json.Unmarshal(raw, &named)
		tenant.Name = named.Name
	}
	return value.Elem(), err
}
