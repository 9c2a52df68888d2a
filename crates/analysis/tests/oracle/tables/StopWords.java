import java.util.*; import java.io.*;
public class StopWords { public static void main(String[] a) throws Exception {
  Scanner in = new Scanner(new File(a[1]));
  while (in.hasNext()) { String[] p = in.next().split(":"); 
   try { Class<?> c = Class.forName("org.apache.lucene.analysis."+p[1]+"."+p[0]+"Analyzer"); Set<?> s=null;
   for (String m : new String[]{"getDefaultStopSet","getDefaultSet"}) try { s = (Set<?>) c.getMethod(m).invoke(null); break; } catch (NoSuchMethodException e) {}
   TreeSet<String> t = new TreeSet<>(); for (Object o : s) t.add(new String((char[])o));
   PrintWriter w = new PrintWriter(a[0]+"/"+p[1].replace(".","")+".txt","UTF-8"); for (String x : t) w.println(x); w.close(); } catch (Throwable e) { System.out.println(p[0]+" "+e); } } } }
