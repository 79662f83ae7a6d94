import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.lang.reflect.Parameter;
import java.lang.reflect.ParameterizedType;
import java.lang.reflect.Type;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.admin.PulsarAdmin;
import org.apache.pulsar.client.admin.PulsarAdminException;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.transaction.TxnID;
import org.apache.pulsar.client.impl.MessageIdImpl;

/**
 * Calls methods of the Java admin client. Standard input has one request per line, standard output one response:
 *
 * <pre>
 * list                              one line per method: its signature
 * call SIGNATURE NAME=VALUE ...     ok | refused STATUS REASON | failed EXCEPTION
 * </pre>
 *
 * Words are separated by tabs. NAME is a parameter, or a field of an object that is a parameter. Parameters and fields
 * without a value get one by their type; every field of an object is set.
 */
public final class MethodsDriver {
    private static final long ANSWER_SECONDS = 20;
    private static final Map<String, Method> METHODS = new TreeMap<>();
    private static final Map<String, Object> GROUPS = new HashMap<>();
    private static Map<String, String> given = Map.of();

    public static void main(String[] arguments) throws Exception {
        var admin = PulsarAdmin.builder().serviceHttpUrl(arguments[0]).build();
        enumerate(admin);
        var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (var line = lines.readLine(); line != null; line = lines.readLine()) {
            var words = line.split("\t", -1);
            var answer = words[0].equals("list") ? String.join("\t", METHODS.keySet()) : call(words);
            System.out.println(answer.replace("\n", " ").replace("\r", ""));
            System.out.flush();
        }
        System.exit(0);
    }

    private static void enumerate(PulsarAdmin admin) throws Exception {
        for (var getter : PulsarAdmin.class.getMethods()) {
            var type = getter.getReturnType();
            var isGroup = type.isInterface() && type.getPackageName().equals("org.apache.pulsar.client.admin");
            if (!isGroup || Modifier.isStatic(getter.getModifiers())) {
                continue;
            }
            var isGlobal = getter.getParameterCount() == 1;
            var group = getter.getName() + (isGlobal ? "(true)" : "");
            GROUPS.put(group, isGlobal ? getter.invoke(admin, true) : getter.invoke(admin));
            for (var method : type.getMethods()) {
                if (!Modifier.isStatic(method.getModifiers()) && !hasSynchronousTwin(type, method)) {
                    METHODS.put(group + "." + signature(method), method);
                }
            }
        }
    }

    /** The twin calls the asynchronous method. */
    private static boolean hasSynchronousTwin(Class<?> type, Method method) {
        if (!CompletableFuture.class.isAssignableFrom(method.getReturnType())) {
            return false;
        }
        try {
            type.getMethod(method.getName().replaceFirst("Async$", ""), method.getParameterTypes());
            return method.getName().endsWith("Async");
        } catch (NoSuchMethodException none) {
            return false;
        }
    }

    private static String signature(Method method) {
        var parameters = new ArrayList<String>();
        for (var one : method.getParameters()) {
            parameters.add(one.getType().getSimpleName() + " " + one.getName());
        }
        return method.getName() + "(" + String.join(", ", parameters) + ")";
    }

    private static String call(String[] words) {
        given = new HashMap<>();
        for (var pair : Arrays.asList(words).subList(2, words.length)) {
            given.put(pair.substring(0, pair.indexOf('=')), pair.substring(pair.indexOf('=') + 1));
        }
        var method = METHODS.get(words[1]);
        var group = GROUPS.get(words[1].substring(0, words[1].indexOf('.')));
        try {
            var values = new ArrayList<>();
            for (var one : method.getParameters()) {
                values.add(parameter(one));
            }
            method.setAccessible(true);
            var result = method.invoke(group, values.toArray());
            if (result instanceof CompletableFuture<?> future) {
                future.get(ANSWER_SECONDS, TimeUnit.SECONDS);
            }
            return "ok";
        } catch (Throwable problem) {
            return refusal(problem);
        }
    }

    private static String refusal(Throwable problem) {
        for (var one = problem; one != null; one = one.getCause()) {
            if (one instanceof PulsarAdminException refused && refused.getStatusCode() > 0) {
                return "refused\t" + refused.getStatusCode() + "\t" + refused.getHttpError();
            }
        }
        var cause = problem;
        while (cause.getCause() != null) {
            cause = cause.getCause();
        }
        return "failed\t" + cause;
    }

    private static Object parameter(Parameter one) throws Exception {
        if (one.getType() == boolean.class && !given.containsKey(one.getName())) {
            return true;
        }
        return value(one.getName(), one.getParameterizedType());
    }

    private static Object value(String name, Type generic) throws Exception {
        var type = generic instanceof ParameterizedType one ? (Class<?>) one.getRawType() : (Class<?>) generic;
        var inner = generic instanceof ParameterizedType one ? one.getActualTypeArguments() : new Type[0];
        var text = given.get(name);
        if ("null".equals(text)) {
            return null;
        }
        if (type == String.class || type == Object.class) {
            return text == null ? "x" : text;
        } else if (type == boolean.class || type == Boolean.class) {
            return Boolean.parseBoolean(text);
        } else if (type == int.class || type == Integer.class) {
            return text == null ? 100 : Integer.parseInt(text);
        } else if (type == long.class || type == Long.class) {
            return text == null ? 100L : Long.parseLong(text);
        } else if (type == double.class || type == Double.class) {
            return text == null ? 1.0 : Double.parseDouble(text);
        } else if (type == float.class || type == Float.class) {
            return text == null ? 1.0f : Float.parseFloat(text);
        } else if (type == short.class || type == Short.class || type == byte.class || type == char.class) {
            return type == char.class ? (Object) 'x' : type == byte.class ? (Object) (byte) 1 : (Object) (short) 1;
        } else if (type == byte[].class) {
            return (text == null ? "" : text).getBytes(StandardCharsets.UTF_8);
        } else if (type.isEnum()) {
            return constant(type, text);
        } else if (type == MessageId.class) {
            return text == null ? MessageId.earliest : messageId(text);
        } else if (type == TxnID.class) {
            return new TxnID(0, 1);
        } else if (type.isArray()) {
            return java.lang.reflect.Array.newInstance(type.getComponentType(), 0);
        } else if (type == Optional.class) {
            return Optional.of(value(name, inner[0]));
        } else if (Map.class.isAssignableFrom(type)) {
            var map = new TreeMap<Object, Object>(Comparator.comparing(String::valueOf));
            if (!"none".equals(text)) {
                var key = inner.length == 0 || inner[0] == String.class ? given.getOrDefault(name + ".key", "x") : value(name, inner[0]);
                map.put(key, value(name + ".value", inner.length == 0 ? String.class : inner[1]));
            }
            return type.isAssignableFrom(TreeMap.class) ? map : new LinkedHashMap<>(map);
        } else if (Iterable.class.isAssignableFrom(type)) {
            var set = new LinkedHashSet<Object>();
            if (!"none".equals(text)) {
                set.add(value(name, inner.length == 0 ? String.class : inner[0]));
            }
            return List.class.isAssignableFrom(type) ? new ArrayList<>(set) : set;
        }
        return object(type);
    }

    private static Object constant(Class<?> type, String text) {
        for (var one : type.getEnumConstants()) {
            if (one.toString().equals(text) || ((Enum<?>) one).name().equals(text)) {
                return one;
            }
        }
        return type.getEnumConstants()[0];
    }

    private static MessageId messageId(String text) {
        var numbers = text.split(":");
        return new MessageIdImpl(Long.parseLong(numbers[0]), Long.parseLong(numbers[1]), -1);
    }

    /** By its builder where it has one; else by its constructor without parameters and its fields. */
    private static Object object(Class<?> type) throws Exception {
        try {
            var builder = type.getMethod("builder").invoke(null);
            return built(builder);
        } catch (NoSuchMethodException none) {
            return filled(type.isInterface() ? Class.forName(type.getName() + "Impl") : type);
        }
    }

    private static Object built(Object builder) throws Exception {
        for (var setter : builder.getClass().getMethods()) {
            if (setter.getParameterCount() == 1
                    && setter.getDeclaringClass() != Object.class
                    && !Modifier.isStatic(setter.getModifiers())) {
                setter.setAccessible(true);
                setter.invoke(builder, value(setter.getName(), setter.getGenericParameterTypes()[0]));
            }
        }
        var build = builder.getClass().getMethod("build");
        build.setAccessible(true);
        return build.invoke(builder);
    }

    private static Object filled(Class<?> type) throws Exception {
        Constructor<?> constructor = type.getDeclaredConstructor();
        constructor.setAccessible(true);
        var made = constructor.newInstance();
        for (Class<?> at = type; at != Object.class; at = at.getSuperclass()) {
            for (Field field : at.getDeclaredFields()) {
                if (!Modifier.isStatic(field.getModifiers()) && !Modifier.isFinal(field.getModifiers())) {
                    field.setAccessible(true);
                    field.set(made, value(field.getName(), field.getGenericType()));
                }
            }
        }
        return made;
    }
}
