// S=http://NAME:PASSWORD@127.0.0.1:5984 java Quickstart.java
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.util.Base64;
import java.util.regex.Pattern;
import java.util.stream.Collectors;

public class Quickstart {
    private static final URI SERVER = URI.create(System.getenv("S"));
    private static final HttpClient CLIENT = HttpClient.newHttpClient();

    static HttpResponse<String> request(String method, String path, String body) throws Exception {
        String login = Base64.getEncoder().encodeToString(SERVER.getUserInfo().getBytes());
        URI uri = new URI(SERVER.getScheme(), null, SERVER.getHost(), SERVER.getPort(), path, null, null);
        HttpRequest request = HttpRequest.newBuilder(uri)
            .method(method, BodyPublishers.ofString(body))
            .header("Authorization", "Basic " + login)
            .header("Content-Type", "application/json")
            .build();
        return CLIENT.send(request, BodyHandlers.ofString());
    }

    public static void main(String[] arguments) throws Exception {
        // A database, and three documents. The JDK has no JSON; use the library of your choice for it.
        System.out.println("database: " + request("PUT", "/quickstart", "").statusCode());
        String docs = """
            {"docs": [
              {"_id": "tea", "price": 4.5},
              {"_id": "milk", "price": 1.25},
              {"_id": "pot", "price": 24.9}]}""";
        System.out.println("documents: " + request("POST", "/quickstart/_bulk_docs", docs).statusCode());

        // An update has the revision that it replaces: the one that was read. The ETag has it too.
        String rev = request("GET", "/quickstart/tea", "").headers().firstValue("ETag").orElseThrow();
        String update = "{\"_rev\": %s, \"price\": 5}".formatted(rev);
        System.out.println("update: " + request("PUT", "/quickstart/tea", update).statusCode());

        // That revision is no longer the latest: somebody else was faster.
        System.out.println("conflict: " + request("PUT", "/quickstart/tea", update).statusCode());

        // A query.
        String query = "{\"selector\": {\"price\": {\"$lt\": 10}}, \"fields\": [\"_id\"]}";
        String found = request("POST", "/quickstart/_find", query).body();
        System.out.println("found: " + Pattern.compile("\"_id\":\"([a-z]+)\"").matcher(found).results()
            .map(match -> match.group(1)).collect(Collectors.joining(" ")));

        request("DELETE", "/quickstart", "");
    }
}
